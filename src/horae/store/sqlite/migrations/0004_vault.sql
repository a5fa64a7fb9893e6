-- People, secrets and the sealed trail. A release before this one goes on reading and writing, as long as no job has what
-- only this one knows; but runs that its retention deletes, whoever verifies the trail misses.
-- min_reader: 1

-- Secrets that are not one job's own (those are in job_secrets), encrypted under the master key key_id.
CREATE TABLE sys.secrets (
    secret_name  TEXT PRIMARY KEY,
    secret_value BLOB NOT NULL,
    key_id       TEXT NOT NULL,
    updated_at   INTEGER NOT NULL
) WITHOUT ROWID;

-- What the database itself calls them, where it knows users; SQLite does not.
ALTER TABLE sys.users ADD COLUMN database_role TEXT;
ALTER TABLE sys.roles ADD COLUMN database_role TEXT;

-- A row's place in the sealed order, NULL until it is sealed. Numbers are no such order: on PostgreSQL a transaction that
-- took its number early may commit late. Seals go by places, and none has been written before.
ALTER TABLE sys.audit ADD COLUMN position INTEGER;
-- Written with the place: the digest over all the rest of the row, so that one that was edited is known by itself.
ALTER TABLE sys.audit ADD COLUMN seal TEXT;
CREATE UNIQUE INDEX sys.audit_position ON audit (position) WHERE position IS NOT NULL;
CREATE INDEX sys.audit_unsealed ON audit (audit_no) WHERE position IS NULL;
ALTER TABLE sys.audit_seals RENAME COLUMN first_audit_no TO first_position;
ALTER TABLE sys.audit_seals RENAME COLUMN last_audit_no TO last_position;
-- Over the digests of its rows: apart from the seal's own, it tells whether the seal was edited or what it covers.
ALTER TABLE sys.audit_seals ADD COLUMN rows_digest TEXT NOT NULL DEFAULT '';

-- Few fail: so that counting them does not read all that ended.
CREATE INDEX sys.job_runs_failed ON job_runs (run_no)
    WHERE state = 'FAILED' OR state = 'FAILED_STALE' OR (state = 'CANCELLED' AND reason = 'timeout');

-- The scheduler's figures, from what the catalog holds: averages are of the last hour, by the clock of whoever looks, and
-- NULL where nothing happened; jobs_failed_total counts the runs that are kept.
CREATE VIEW sys.performance AS
SELECT 'scheduler_queue_depth' AS metric, CAST(count(*) AS REAL) AS value, 'runs' AS unit
FROM job_runs
WHERE completed_at IS NULL AND not_before <= CAST(unixepoch('subsec') * 1000 AS INTEGER)
    AND (waiting_for IS NULL OR waiting_for = 'retry')
    AND (deadline_at IS NULL OR deadline_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER))
UNION ALL
SELECT 'scheduler_jobs_in_queue_total', CAST(count(*) AS REAL), 'runs'
FROM job_runs
WHERE completed_at IS NULL AND (state = 'QUEUED' OR (
    not_before <= CAST(unixepoch('subsec') * 1000 AS INTEGER)
    AND (waiting_for IS NULL OR waiting_for = 'retry')
    AND (deadline_at IS NULL OR deadline_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER))
))
UNION ALL
SELECT 'jobs_running', CAST(count(*) AS REAL), 'runs' FROM job_runs WHERE completed_at IS NULL AND state = 'RUNNING'
UNION ALL
SELECT 'scheduler_jobs_running_total', CAST(count(*) AS REAL), 'runs'
FROM job_runs WHERE completed_at IS NULL AND state = 'RUNNING'
UNION ALL
SELECT 'scheduler_jobs_paused_total', CAST(count(*) AS REAL), 'jobs' FROM jobs WHERE state = 'PAUSED'
UNION ALL
SELECT 'jobs_failed_total', CAST(count(*) AS REAL), 'runs'
FROM job_runs WHERE state = 'FAILED' OR state = 'FAILED_STALE' OR (state = 'CANCELLED' AND reason = 'timeout')
UNION ALL
SELECT 'job_run_latency_ms', avg(late), 'ms'
FROM (
    -- Whatever started within the hour is under way, or ended within it.
    SELECT started_at - chosen_time AS late FROM job_runs
    WHERE completed_at IS NULL AND started_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER) - 3600000
    UNION ALL
    SELECT started_at - chosen_time FROM job_runs
    WHERE completed_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER) - 3600000
        AND started_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER) - 3600000
)
UNION ALL
SELECT 'scheduler_start_lag_seconds', avg(late) / 1000, 's'
FROM (
    SELECT started_at - chosen_time AS late FROM job_runs
    WHERE completed_at IS NULL AND started_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER) - 3600000
    UNION ALL
    SELECT started_at - chosen_time FROM job_runs
    WHERE completed_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER) - 3600000
        AND started_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER) - 3600000
)
UNION ALL
SELECT 'scheduler_job_execution_duration_seconds', avg(completed_at - started_at) / 1000, 's'
FROM job_runs
WHERE completed_at >= CAST(unixepoch('subsec') * 1000 AS INTEGER) - 3600000 AND started_at IS NOT NULL;
