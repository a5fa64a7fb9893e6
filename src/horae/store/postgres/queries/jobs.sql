-- Jobs: their rows, their versions, what hangs on a definition. `:rows` stands for the rows given, as `given`.

-- name: lock_due_jobs
-- Whoever plans does not ask how the job was registered, and five hundred digests take their time.
SELECT
    job_uuid, job_name, version, state, planned_until, wake_at, first_seen, paused_until, moved_slot, moved_to,
    covered_until, next_run_time, last_enqueued_at, pause_note, namespace, created_at, updated_at, NULL
FROM sys.jobs
WHERE wake_at <= :now AND job_uuid <> ALL (:skip::uuid[])
ORDER BY wake_at, job_uuid
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: lock_jobs
SELECT
    job_uuid, job_name, version, state, planned_until, wake_at, first_seen, paused_until, moved_slot, moved_to,
    covered_until, next_run_time, last_enqueued_at, pause_note, namespace, created_at, updated_at, registered
FROM sys.jobs
WHERE job_uuid = ANY (:jobs::uuid[])
ORDER BY job_uuid
FOR UPDATE;

-- name: lock_free_jobs
SELECT
    job_uuid, job_name, version, state, planned_until, wake_at, first_seen, paused_until, moved_slot, moved_to,
    covered_until, next_run_time, last_enqueued_at, pause_note, namespace, created_at, updated_at, registered
FROM sys.jobs
WHERE job_uuid = ANY (:jobs::uuid[])
ORDER BY job_uuid
FOR UPDATE SKIP LOCKED;

-- name: lock_jobs_of_runs
-- The job of a run never changes, so it may be read before the run is locked.
SELECT count(*) FROM (
    SELECT 1 FROM sys.jobs
    WHERE job_uuid IN (SELECT job_uuid FROM sys.job_runs WHERE run_no = ANY (:runs::bigint[]))
    ORDER BY job_uuid
    FOR UPDATE
) locked;

-- name: lock_these_jobs
SELECT count(*) FROM (
    SELECT 1 FROM sys.jobs WHERE job_uuid = ANY (:jobs::uuid[]) ORDER BY job_uuid FOR UPDATE
) locked;

-- name: load_versions
SELECT v.job_uuid, v.version, v.definition, v.defaults, v.former
FROM jsonb_array_elements(:wanted::jsonb) AS wanted (pair)
JOIN sys.job_versions v ON v.job_uuid = (pair ->> 0)::uuid AND v.version = (pair ->> 1)::bigint;

-- name: versions_in_use
-- Of these versions, those that are their job's present one, or that a run which has not ended is of.
SELECT w.job_uuid, w.version
FROM (
    SELECT (pair ->> 0)::uuid AS job_uuid, (pair ->> 1)::bigint AS version
    FROM jsonb_array_elements(:wanted::jsonb) AS wanted (pair)
) w
WHERE EXISTS (SELECT 1 FROM sys.jobs j WHERE j.job_uuid = w.job_uuid AND j.version = w.version)
    OR EXISTS (
        SELECT 1 FROM sys.job_runs r
        WHERE r.job_uuid = w.job_uuid AND r.completed_at IS NULL AND r.version = w.version
    );

-- name: read_outlines
-- What is known of jobs besides their definitions: name, namespace, owner, the names of their tasks.
SELECT
    n.job_uuid, n.job_name, coalesce(j.namespace, 'default'), u.user_name,
    coalesce((
        SELECT json_agg(t.task_name ORDER BY t.position) FROM sys.job_tasks t
        WHERE t.job_uuid = n.job_uuid AND t.retired_at IS NULL
    ), '[]')::text
FROM (
    SELECT job_uuid, job_name::text FROM sys.jobs WHERE job_uuid = ANY (:jobs::uuid[])
    UNION
    SELECT job_uuid, job_name FROM sys.job_tombstones WHERE job_uuid = ANY (:jobs::uuid[])
) n
LEFT JOIN sys.jobs j ON j.job_uuid = n.job_uuid
LEFT JOIN sys.users u ON u.user_uuid = j.created_by_user_uuid;

-- name: read_job_versions
SELECT job_uuid, version FROM sys.jobs WHERE job_uuid = ANY (:jobs::uuid[]);

-- name: read_author
SELECT author FROM sys.job_versions WHERE job_uuid = :job::uuid AND version = :version;

-- name: read_defaults
SELECT defaults FROM sys.job_versions WHERE job_uuid = :job::uuid AND version = :version;

-- name: insert_jobs(job_no bigint, job_uuid uuid, job_name text, description text, job_type text, job_sql text, external_command text, schedule_kind text, cron_expression text, interval_seconds bigint, starts_at bigint, ends_at bigint, schedule_tz text, on_completion text, max_retries integer, retry_backoff_seconds integer, timeout_seconds integer, namespace text, tags text, schedule_text text, job_class text, procedure_uuid uuid, partition_strategy text, partition_shard_uuid uuid, partition_expression text, run_as_role_uuid uuid, created_by_user_uuid uuid, created_at bigint, state text, version bigint, registered text, planned_until bigint, next_run_time bigint, wake_at bigint, updated_at bigint)
INSERT INTO sys.jobs (
    job_no, job_uuid, job_name, description, job_type, job_sql, external_command, schedule_kind, cron_expression,
    interval_seconds, starts_at, ends_at, schedule_tz, on_completion, max_retries, retry_backoff_seconds,
    timeout_seconds, namespace, tags, schedule_text, job_class, procedure_uuid, partition_strategy,
    partition_shard_uuid, partition_expression, run_as_role_uuid, created_by_user_uuid, created_at, state, version,
    registered, planned_until, next_run_time, wake_at, updated_at
)
SELECT
    job_no, job_uuid, job_name, description, job_type, job_sql, external_command, schedule_kind, cron_expression,
    interval_seconds, starts_at, ends_at, schedule_tz, on_completion, max_retries, retry_backoff_seconds,
    timeout_seconds, namespace, tags, schedule_text, job_class, procedure_uuid, partition_strategy,
    partition_shard_uuid, partition_expression, run_as_role_uuid, created_by_user_uuid, created_at, state, version,
    registered, planned_until, next_run_time, wake_at, updated_at
FROM :rows;

-- name: reserve_job_numbers
SELECT number, number FROM (SELECT nextval('sys.job_numbers') AS number FROM generate_series(1, :count::integer)) taken;

-- name: change_jobs(job_uuid uuid, description text, job_type text, job_sql text, external_command text, schedule_kind text, cron_expression text, interval_seconds bigint, starts_at bigint, ends_at bigint, schedule_tz text, on_completion text, max_retries integer, retry_backoff_seconds integer, timeout_seconds integer, namespace text, tags text, schedule_text text, job_class text, procedure_uuid uuid, partition_strategy text, partition_shard_uuid uuid, partition_expression text, run_as_role_uuid uuid, version bigint)
UPDATE sys.jobs SET
    description = given.description, job_type = given.job_type, job_sql = given.job_sql,
    external_command = given.external_command, schedule_kind = given.schedule_kind,
    cron_expression = given.cron_expression, interval_seconds = given.interval_seconds, starts_at = given.starts_at,
    ends_at = given.ends_at, schedule_tz = given.schedule_tz, on_completion = given.on_completion,
    max_retries = given.max_retries, retry_backoff_seconds = given.retry_backoff_seconds,
    timeout_seconds = given.timeout_seconds, namespace = given.namespace, tags = given.tags,
    schedule_text = given.schedule_text, job_class = given.job_class, procedure_uuid = given.procedure_uuid,
    partition_strategy = given.partition_strategy, partition_shard_uuid = given.partition_shard_uuid,
    partition_expression = given.partition_expression, run_as_role_uuid = given.run_as_role_uuid,
    version = given.version
FROM :rows
WHERE jobs.job_uuid = given.job_uuid;

-- name: save_jobs(job_uuid uuid, state text, planned_until bigint, wake_at bigint, first_seen boolean, paused_until bigint, moved_slot bigint, moved_to bigint, covered_until bigint, next_run_time bigint, last_enqueued_at bigint, pause_note text, updated_at bigint)
UPDATE sys.jobs SET
    state = given.state, planned_until = given.planned_until, wake_at = given.wake_at, first_seen = given.first_seen,
    paused_until = given.paused_until, moved_slot = given.moved_slot, moved_to = given.moved_to,
    covered_until = given.covered_until, next_run_time = given.next_run_time,
    last_enqueued_at = given.last_enqueued_at, pause_note = given.pause_note, updated_at = given.updated_at,
    revision = jobs.revision + 1
FROM :rows
WHERE jobs.job_uuid = given.job_uuid;

-- name: advance_cursors(job_uuid uuid, planned_until bigint, wake_at bigint, now bigint)
-- The plain case of save_jobs: without a window people are shown the time the alarm rings.
UPDATE sys.jobs SET
    planned_until = given.planned_until, next_run_time = given.wake_at, wake_at = given.wake_at, first_seen = false,
    last_enqueued_at = given.now
FROM :rows
WHERE jobs.job_uuid = given.job_uuid;

-- name: cover_jobs(job_uuid uuid, covered_until bigint)
UPDATE sys.jobs SET covered_until = given.covered_until FROM :rows
WHERE jobs.job_uuid = given.job_uuid;

-- name: set_registered(job_uuid uuid, registered text)
UPDATE sys.jobs SET registered = given.registered FROM :rows WHERE jobs.job_uuid = given.job_uuid;

-- name: insert_versions(job_uuid uuid, version bigint, definition text, defaults text, source text, author text, reason text, created_at bigint, plain_start jsonb, former text)
INSERT INTO sys.job_versions (
    job_uuid, version, definition, defaults, source, author, reason, created_at, plain_start, former
)
SELECT job_uuid, version, definition, defaults, source, author, reason, created_at, plain_start, former FROM :rows;

-- name: upsert_tasks(job_uuid uuid, task_uuid uuid, task_name text, position bigint, task_type text, handler text, settings text)
INSERT INTO sys.job_tasks (job_uuid, task_uuid, task_name, position, task_type, handler, settings)
SELECT job_uuid, task_uuid, task_name, position, task_type, handler, settings FROM :rows
ON CONFLICT (job_uuid, task_uuid) DO UPDATE SET
    position = excluded.position, task_type = excluded.task_type, handler = excluded.handler,
    settings = excluded.settings, retired_at = NULL;

-- name: retire_tasks
UPDATE sys.job_tasks SET retired_at = :now
WHERE job_uuid = :job::uuid AND retired_at IS NULL AND task_uuid <> ALL (:kept::uuid[]);

-- name: read_tombstones
SELECT job_uuid, planned_until, last_version FROM sys.job_tombstones
WHERE job_uuid = ANY (:jobs::uuid[]);

-- name: read_leftovers
-- What is kept of jobs that are not there: the last version, and the last slot that has a run.
SELECT wanted.job_uuid, (
    SELECT max(v.version) FROM sys.job_versions v WHERE v.job_uuid = wanted.job_uuid
), (
    SELECT r.scheduled_time FROM sys.job_runs r
    WHERE r.job_uuid = wanted.job_uuid AND r.idempotency_key >= 'schedule:' AND r.idempotency_key < 'schedule;'
    ORDER BY r.idempotency_key DESC LIMIT 1
)
FROM unnest(:jobs::uuid[]) AS wanted (job_uuid)
WHERE EXISTS (SELECT 1 FROM sys.job_versions v WHERE v.job_uuid = wanted.job_uuid)
    OR EXISTS (SELECT 1 FROM sys.job_runs r WHERE r.job_uuid = wanted.job_uuid);

-- name: insert_tombstones(job_uuid uuid, job_name text, planned_until bigint, last_version bigint, dropped_at bigint, dropped_by text)
INSERT INTO sys.job_tombstones AS t (job_uuid, job_name, planned_until, last_version, dropped_at, dropped_by)
SELECT job_uuid, job_name, planned_until, last_version, dropped_at, dropped_by FROM :rows
ON CONFLICT (job_uuid) DO UPDATE SET
    planned_until = greatest(t.planned_until, excluded.planned_until), last_version = excluded.last_version,
    dropped_at = excluded.dropped_at, dropped_by = excluded.dropped_by;

-- name: delete_tombstones(job_uuid uuid)
DELETE FROM sys.job_tombstones USING :rows WHERE job_tombstones.job_uuid = given.job_uuid;

-- name: delete_jobs(job_uuid uuid)
DELETE FROM sys.jobs USING :rows WHERE jobs.job_uuid = given.job_uuid;

-- name: take_time
-- Definitions are worked out in the middle of this transaction, which may stand still meanwhile. A limit that is set
-- counts from its being set only where there was none before.
SELECT
    set_config('idle_in_transaction_session_timeout', '60s', true),
    CASE WHEN current_setting('server_version_num')::bigint >= 170000 THEN
        set_config('transaction_timeout', '0', true) || set_config('transaction_timeout', '600s', true)
    END;

-- name: lock_dependencies
INSERT INTO sys.locks AS l (lock_name) VALUES ('dependencies')
ON CONFLICT (lock_name) DO UPDATE SET lock_name = excluded.lock_name;

-- name: dependency_graph
SELECT j.job_name, o.job_name
FROM sys.job_dependencies d
JOIN sys.jobs j ON j.job_uuid = d.job_uuid
JOIN sys.jobs o ON o.job_uuid = d.depends_on_job_uuid
ORDER BY 1, 2;

-- name: known_names
SELECT job_name FROM sys.jobs WHERE job_name = ANY (:names::text[]);

-- name: dependents_of
-- Last: whether both have one owner.
SELECT j.job_name, o.job_name, j.created_by_user_uuid IS NOT DISTINCT FROM o.created_by_user_uuid
FROM sys.job_dependencies d
JOIN sys.jobs j ON j.job_uuid = d.job_uuid
JOIN sys.jobs o ON o.job_uuid = d.depends_on_job_uuid
WHERE d.depends_on_job_uuid = ANY (:jobs::uuid[])
ORDER BY 1, 2;

-- name: insert_dependencies(job_uuid uuid, depends_on uuid)
INSERT INTO sys.job_dependencies (job_uuid, depends_on_job_uuid)
SELECT job_uuid, depends_on FROM :rows
ON CONFLICT (job_uuid, depends_on_job_uuid) DO NOTHING;

-- name: delete_dependencies(job_uuid uuid)
DELETE FROM sys.job_dependencies USING :rows WHERE job_dependencies.job_uuid = given.job_uuid;

-- name: list_jobs
SELECT
    j.job_uuid, j.job_name, j.version, j.state, j.planned_until, j.wake_at, j.first_seen, j.paused_until, j.moved_slot,
    j.moved_to, j.covered_until, j.next_run_time, j.last_enqueued_at, j.pause_note, j.namespace, j.created_at,
    j.updated_at, j.registered, coalesce(v.author, 'local'), u.user_name
FROM sys.jobs j
LEFT JOIN sys.users u ON u.user_uuid = j.created_by_user_uuid
LEFT JOIN sys.job_versions v ON v.job_uuid = j.job_uuid
    AND v.version = (
        SELECT min(w.version) FROM sys.job_versions w WHERE w.job_uuid = j.job_uuid AND w.created_at >= j.created_at
    )
WHERE (:jobs::uuid[] IS NULL OR j.job_uuid = ANY (:jobs::uuid[]))
    AND (:state::text IS NULL OR j.state = :state)
    AND (:tag::text IS NULL OR j.tags::jsonb ? :tag)
    AND j.job_name > coalesce(:after, '')
ORDER BY j.job_name
LIMIT :limit;

-- name: count_jobs
-- The one statement that reads all jobs: it is asked when somebody looks at metrics.
SELECT state, count(*) FROM sys.jobs GROUP BY state;

-- name: read_pools
SELECT pool_name, max_running FROM sys.pools ORDER BY pool_name;

-- name: upsert_pool
INSERT INTO sys.pools (pool_name, max_running, updated_at) VALUES (:pool, :limit, :now)
ON CONFLICT (pool_name) DO UPDATE SET max_running = excluded.max_running, updated_at = excluded.updated_at;

-- name: delete_pool
DELETE FROM sys.pools WHERE pool_name = :pool;

-- name: insert_audit(at bigint, event text, job_uuid uuid, job_run_uuid uuid, actor text, outcome text, details text, digest text)
INSERT INTO sys.audit (at, event, job_uuid, job_run_uuid, actor, outcome, details, digest)
SELECT at, event, job_uuid, job_run_uuid, actor, outcome, details, digest FROM :rows;

-- name: open_requests
SELECT request_no, job_name, field, value, requested_at, requested_by
FROM sys.schedule_requests
WHERE applied_at IS NULL
ORDER BY request_no
LIMIT :limit;

-- name: open_pauses
-- The last request of each job that pauses it.
SELECT job_name, max(request_no)
FROM sys.schedule_requests
WHERE applied_at IS NULL AND field = 'enabled' AND coalesce(lower(value), '') NOT IN ('1', 'true', 't')
GROUP BY job_name;

-- name: requested_names
SELECT DISTINCT job_name FROM sys.schedule_requests WHERE applied_at IS NULL AND job_name IS NOT NULL;

-- name: begin_part
SAVEPOINT part;

-- name: undo_part
ROLLBACK TO SAVEPOINT part;

-- name: end_part
RELEASE SAVEPOINT part;

-- name: close_request
UPDATE sys.schedule_requests SET applied_at = :now, error = :error WHERE request_no = :request;
