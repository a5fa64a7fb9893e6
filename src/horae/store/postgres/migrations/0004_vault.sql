-- People, secrets and the sealed trail. A release before this one goes on reading and writing, as long as no job has what
-- only this one knows; but runs that its retention deletes, whoever verifies the trail misses.
-- min_reader: 1

-- Secrets that are not one job's own (those are in job_secrets), encrypted under the master key key_id.
CREATE TABLE sys.secrets (
    secret_name  VARCHAR(128) COLLATE "C" PRIMARY KEY,
    secret_value BYTEA NOT NULL,
    key_id       TEXT NOT NULL,
    updated_at   BIGINT NOT NULL
);

-- What the database itself calls them: roles of a server are shared by all its databases, so names may differ.
ALTER TABLE sys.users ADD COLUMN database_role TEXT;
ALTER TABLE sys.roles ADD COLUMN database_role TEXT;

-- A row's place in the sealed order, NULL until it is sealed. Numbers are no such order: a transaction that took its
-- number early may commit late. Seals go by places, and none has been written before.
ALTER TABLE sys.audit ADD COLUMN position BIGINT;
-- Written with the place: the digest over all the rest of the row, so that one that was edited is known by itself.
ALTER TABLE sys.audit ADD COLUMN seal TEXT;
CREATE UNIQUE INDEX audit_position ON sys.audit (position) WHERE position IS NOT NULL;
CREATE INDEX audit_unsealed ON sys.audit (audit_no) WHERE position IS NULL;
ALTER TABLE sys.audit_seals RENAME COLUMN first_audit_no TO first_position;
ALTER TABLE sys.audit_seals RENAME COLUMN last_audit_no TO last_position;
-- Over the digests of its rows: apart from the seal's own, it tells whether the seal was edited or what it covers.
ALTER TABLE sys.audit_seals ADD COLUMN rows_digest TEXT NOT NULL DEFAULT '';

-- Few fail: so that counting them does not read all that ended.
CREATE INDEX job_runs_failed ON sys.job_runs (run_no)
    WHERE state IN ('FAILED', 'FAILED_STALE') OR (state = 'CANCELLED' AND reason = 'timeout');

-- The scheduler's figures, from what the catalog holds: averages are of the last hour, by the server's clock, and NULL
-- where nothing happened; jobs_failed_total counts the runs that are kept.
CREATE VIEW sys.performance AS
SELECT 'scheduler_queue_depth'::text AS metric, count(*)::double precision AS value, 'runs'::text AS unit
FROM sys.job_runs
WHERE completed_at IS NULL AND not_before <= (extract(epoch FROM statement_timestamp()) * 1000)::bigint
    AND (waiting_for IS NULL OR waiting_for = 'retry')
    AND (deadline_at IS NULL OR deadline_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint)
UNION ALL
SELECT 'scheduler_jobs_in_queue_total', count(*), 'runs'
FROM sys.job_runs
WHERE completed_at IS NULL AND (state = 'QUEUED' OR (
    not_before <= (extract(epoch FROM statement_timestamp()) * 1000)::bigint
    AND (waiting_for IS NULL OR waiting_for = 'retry')
    AND (deadline_at IS NULL OR deadline_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint)
))
UNION ALL
SELECT 'jobs_running', count(*), 'runs' FROM sys.job_runs WHERE completed_at IS NULL AND state = 'RUNNING'
UNION ALL
SELECT 'scheduler_jobs_running_total', count(*), 'runs'
FROM sys.job_runs WHERE completed_at IS NULL AND state = 'RUNNING'
UNION ALL
SELECT 'scheduler_jobs_paused_total', count(*), 'jobs' FROM sys.jobs WHERE state = 'PAUSED'
UNION ALL
SELECT 'jobs_failed_total', count(*), 'runs'
FROM sys.job_runs WHERE state IN ('FAILED', 'FAILED_STALE') OR (state = 'CANCELLED' AND reason = 'timeout')
UNION ALL
SELECT 'job_run_latency_ms', avg(late)::double precision, 'ms'
FROM (
    -- Whatever started within the hour is under way, or ended within it.
    SELECT started_at - chosen_time AS late FROM sys.job_runs
    WHERE completed_at IS NULL AND started_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint - 3600000
    UNION ALL
    SELECT started_at - chosen_time FROM sys.job_runs
    WHERE completed_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint - 3600000
        AND started_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint - 3600000
) started
UNION ALL
SELECT 'scheduler_start_lag_seconds', avg(late)::double precision / 1000, 's'
FROM (
    SELECT started_at - chosen_time AS late FROM sys.job_runs
    WHERE completed_at IS NULL AND started_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint - 3600000
    UNION ALL
    SELECT started_at - chosen_time FROM sys.job_runs
    WHERE completed_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint - 3600000
        AND started_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint - 3600000
) started
UNION ALL
SELECT 'scheduler_job_execution_duration_seconds', avg(completed_at - started_at)::double precision / 1000, 's'
FROM sys.job_runs
WHERE completed_at >= (extract(epoch FROM statement_timestamp()) * 1000)::bigint - 3600000 AND started_at IS NOT NULL;
