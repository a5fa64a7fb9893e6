-- Jobs: their rows, their versions, what hangs on a definition. Inside BEGIN IMMEDIATE every row read is locked.

-- name: lock_due_jobs
SELECT
    job_uuid, job_name, version, state, planned_until, wake_at, first_seen, paused_until, moved_slot, moved_to,
    covered_until, next_run_time, last_enqueued_at, pause_note, namespace, created_at, updated_at, registered
FROM sys.jobs INDEXED BY jobs_wake
WHERE wake_at <= :now AND job_uuid NOT IN (SELECT value FROM json_each(:skip))
ORDER BY wake_at, job_uuid
LIMIT :limit;

-- name: lock_jobs
SELECT
    job_uuid, job_name, version, state, planned_until, wake_at, first_seen, paused_until, moved_slot, moved_to,
    covered_until, next_run_time, last_enqueued_at, pause_note, namespace, created_at, updated_at, registered
FROM sys.jobs
WHERE job_uuid IN (SELECT value FROM json_each(:jobs))
ORDER BY job_uuid;

-- name: lock_free_jobs
SELECT
    job_uuid, job_name, version, state, planned_until, wake_at, first_seen, paused_until, moved_slot, moved_to,
    covered_until, next_run_time, last_enqueued_at, pause_note, namespace, created_at, updated_at, registered
FROM sys.jobs
WHERE job_uuid IN (SELECT value FROM json_each(:jobs))
ORDER BY job_uuid;

-- name: lock_jobs_of_runs
-- PostgreSQL locks rows here; this transaction is the only writer already.
SELECT 1 WHERE :runs IS NULL;

-- name: lock_these_jobs
-- PostgreSQL locks rows here.
SELECT 1 WHERE :jobs IS NULL;

-- name: load_versions
SELECT v.job_uuid, v.version, v.definition, v.defaults, v.former
FROM json_each(:wanted) w
CROSS JOIN sys.job_versions v
    ON v.job_uuid = json_extract(w.value, '$[0]') AND v.version = json_extract(w.value, '$[1]');

-- name: versions_in_use
-- Of these versions, those that are their job's present one, or that a run which has not ended is of.
SELECT w.value ->> 0, w.value ->> 1
FROM json_each(:wanted) w
WHERE EXISTS (SELECT 1 FROM sys.jobs j WHERE j.job_uuid = w.value ->> 0 AND j.version = w.value ->> 1)
    OR EXISTS (
        SELECT 1 FROM sys.job_runs r INDEXED BY job_runs_active
        WHERE r.job_uuid = w.value ->> 0 AND r.completed_at IS NULL AND r.version = w.value ->> 1
    );

-- name: read_outlines
-- What is known of jobs besides their definitions: name, namespace, owner, the names of their tasks.
SELECT
    n.job_uuid, n.job_name, coalesce(j.namespace, 'default'), u.user_name,
    (
        SELECT json_group_array(t.task_name) FROM (
            SELECT task_name FROM sys.job_tasks WHERE job_uuid = n.job_uuid AND retired_at IS NULL ORDER BY position
        ) t
    )
FROM (
    SELECT job_uuid, job_name FROM sys.jobs WHERE job_uuid IN (SELECT value FROM json_each(:jobs))
    UNION
    SELECT job_uuid, job_name FROM sys.job_tombstones WHERE job_uuid IN (SELECT value FROM json_each(:jobs))
) n
LEFT JOIN sys.jobs j ON j.job_uuid = n.job_uuid
LEFT JOIN sys.users u ON u.user_uuid = j.created_by_user_uuid;

-- name: read_job_versions
SELECT job_uuid, version FROM sys.jobs WHERE job_uuid IN (SELECT value FROM json_each(:jobs));

-- name: read_author
SELECT author FROM sys.job_versions WHERE job_uuid = :job AND version = :version;

-- name: read_defaults
SELECT defaults FROM sys.job_versions WHERE job_uuid = :job AND version = :version;

-- name: insert_jobs(job_no, job_uuid, job_name, description, job_type, job_sql, external_command, schedule_kind, cron_expression, interval_seconds, starts_at, ends_at, schedule_tz, on_completion, max_retries, retry_backoff_seconds, timeout_seconds, namespace, tags, schedule_text, job_class, procedure_uuid, partition_strategy, partition_shard_uuid, partition_expression, run_as_role_uuid, created_by_user_uuid, created_at, state, version, registered, planned_until, next_run_time, wake_at, updated_at)
INSERT INTO sys.jobs (
    job_no, job_uuid, job_name, description, job_type, job_sql, external_command, schedule_kind, cron_expression,
    interval_seconds, starts_at, ends_at, schedule_tz, on_completion, max_retries, retry_backoff_seconds,
    timeout_seconds, namespace, tags, schedule_text, job_class, procedure_uuid, partition_strategy,
    partition_shard_uuid, partition_expression, run_as_role_uuid, created_by_user_uuid, created_at, state, version,
    registered, planned_until, next_run_time, wake_at, updated_at
) VALUES (
    :job_no, :job_uuid, :job_name, :description, :job_type, :job_sql, :external_command, :schedule_kind, :cron_expression,
    :interval_seconds, :starts_at, :ends_at, :schedule_tz, :on_completion, :max_retries, :retry_backoff_seconds,
    :timeout_seconds, :namespace, :tags, :schedule_text, :job_class, :procedure_uuid, :partition_strategy,
    :partition_shard_uuid, :partition_expression, :run_as_role_uuid, :created_by_user_uuid, :created_at, :state,
    :version, :registered, :planned_until, :next_run_time, :wake_at, :updated_at
);

-- name: reserve_job_numbers
UPDATE sys.counters SET value = value + :count WHERE counter_name = 'job'
RETURNING value - :count + 1, value;

-- name: change_jobs(job_uuid, description, job_type, job_sql, external_command, schedule_kind, cron_expression, interval_seconds, starts_at, ends_at, schedule_tz, on_completion, max_retries, retry_backoff_seconds, timeout_seconds, namespace, tags, schedule_text, job_class, procedure_uuid, partition_strategy, partition_shard_uuid, partition_expression, run_as_role_uuid, version)
UPDATE sys.jobs SET
    description = :description, job_type = :job_type, job_sql = :job_sql, external_command = :external_command,
    schedule_kind = :schedule_kind, cron_expression = :cron_expression, interval_seconds = :interval_seconds,
    starts_at = :starts_at, ends_at = :ends_at, schedule_tz = :schedule_tz, on_completion = :on_completion,
    max_retries = :max_retries, retry_backoff_seconds = :retry_backoff_seconds, timeout_seconds = :timeout_seconds,
    namespace = :namespace, tags = :tags, schedule_text = :schedule_text, job_class = :job_class,
    procedure_uuid = :procedure_uuid, partition_strategy = :partition_strategy,
    partition_shard_uuid = :partition_shard_uuid, partition_expression = :partition_expression,
    run_as_role_uuid = :run_as_role_uuid, version = :version
WHERE job_uuid = :job_uuid;

-- name: save_jobs(job_uuid, state, planned_until, wake_at, first_seen, paused_until, moved_slot, moved_to, covered_until, next_run_time, last_enqueued_at, pause_note, updated_at)
UPDATE sys.jobs SET
    state = :state, planned_until = :planned_until, wake_at = :wake_at, first_seen = :first_seen,
    paused_until = :paused_until, moved_slot = :moved_slot, moved_to = :moved_to, covered_until = :covered_until,
    next_run_time = :next_run_time, last_enqueued_at = :last_enqueued_at, pause_note = :pause_note,
    updated_at = :updated_at, revision = revision + 1
WHERE job_uuid = :job_uuid;

-- name: advance_cursors(job_uuid, planned_until, wake_at, now)
-- The plain case of save_jobs: without a window people are shown the time the alarm rings.
UPDATE sys.jobs SET
    planned_until = :planned_until, next_run_time = :wake_at, wake_at = :wake_at, first_seen = 0, last_enqueued_at = :now
WHERE job_uuid = :job_uuid;

-- name: cover_jobs(job_uuid, covered_until)
UPDATE sys.jobs SET covered_until = :covered_until WHERE job_uuid = :job_uuid;

-- name: set_registered(job_uuid, registered)
UPDATE sys.jobs SET registered = :registered WHERE job_uuid = :job_uuid;

-- name: insert_versions(job_uuid, version, definition, defaults, source, author, reason, created_at, plain_start, former)
INSERT INTO sys.job_versions (
    job_uuid, version, definition, defaults, source, author, reason, created_at, plain_start, former
)
VALUES (:job_uuid, :version, :definition, :defaults, :source, :author, :reason, :created_at, :plain_start, :former);

-- name: upsert_tasks(job_uuid, task_uuid, task_name, position, task_type, handler, settings)
INSERT INTO sys.job_tasks (job_uuid, task_uuid, task_name, position, task_type, handler, settings)
VALUES (:job_uuid, :task_uuid, :task_name, :position, :task_type, :handler, :settings)
ON CONFLICT (job_uuid, task_uuid) DO UPDATE SET
    position = excluded.position, task_type = excluded.task_type, handler = excluded.handler,
    settings = excluded.settings, retired_at = NULL;

-- name: retire_tasks
UPDATE sys.job_tasks SET retired_at = :now
WHERE job_uuid = :job AND retired_at IS NULL AND task_uuid NOT IN (SELECT value FROM json_each(:kept));

-- name: read_tombstones
SELECT job_uuid, planned_until, last_version FROM sys.job_tombstones
WHERE job_uuid IN (SELECT value FROM json_each(:jobs));

-- name: read_leftovers
-- What is kept of jobs that are not there: the last version, and the last slot that has a run.
SELECT wanted.value, (
    SELECT max(v.version) FROM sys.job_versions v WHERE v.job_uuid = wanted.value
), (
    SELECT r.scheduled_time FROM sys.job_runs r
    WHERE r.job_uuid = wanted.value AND r.idempotency_key >= 'schedule:' AND r.idempotency_key < 'schedule;'
    ORDER BY r.idempotency_key DESC LIMIT 1
)
FROM json_each(:jobs) wanted
WHERE EXISTS (SELECT 1 FROM sys.job_versions v WHERE v.job_uuid = wanted.value)
    OR EXISTS (SELECT 1 FROM sys.job_runs r WHERE r.job_uuid = wanted.value);

-- name: insert_tombstones(job_uuid, job_name, planned_until, last_version, dropped_at, dropped_by)
INSERT INTO sys.job_tombstones (job_uuid, job_name, planned_until, last_version, dropped_at, dropped_by)
VALUES (:job_uuid, :job_name, :planned_until, :last_version, :dropped_at, :dropped_by)
ON CONFLICT (job_uuid) DO UPDATE SET
    planned_until = max(planned_until, excluded.planned_until), last_version = excluded.last_version,
    dropped_at = excluded.dropped_at, dropped_by = excluded.dropped_by;

-- name: delete_tombstones(job_uuid)
DELETE FROM sys.job_tombstones WHERE job_uuid = :job_uuid;

-- name: delete_jobs(job_uuid)
DELETE FROM sys.jobs WHERE job_uuid = :job_uuid;

-- name: take_time
-- PostgreSQL lets such a transaction stand still for longer here.
SELECT 1;

-- name: lock_dependencies
-- PostgreSQL takes a lock here.
SELECT 1;

-- name: dependency_graph
SELECT j.job_name, o.job_name
FROM sys.job_dependencies d
JOIN sys.jobs j ON j.job_uuid = d.job_uuid
JOIN sys.jobs o ON o.job_uuid = d.depends_on_job_uuid
ORDER BY 1, 2;

-- name: known_names
SELECT job_name FROM sys.jobs WHERE job_name IN (SELECT value FROM json_each(:names));

-- name: dependents_of
-- Last: whether both have one owner.
SELECT j.job_name, o.job_name, j.created_by_user_uuid IS o.created_by_user_uuid
FROM sys.job_dependencies d
JOIN sys.jobs j ON j.job_uuid = d.job_uuid
JOIN sys.jobs o ON o.job_uuid = d.depends_on_job_uuid
WHERE d.depends_on_job_uuid IN (SELECT value FROM json_each(:jobs))
ORDER BY 1, 2;

-- name: insert_dependencies(job_uuid, depends_on)
INSERT INTO sys.job_dependencies (job_uuid, depends_on_job_uuid) VALUES (:job_uuid, :depends_on)
ON CONFLICT (job_uuid, depends_on_job_uuid) DO NOTHING;

-- name: delete_dependencies(job_uuid)
DELETE FROM sys.job_dependencies WHERE job_uuid = :job_uuid;

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
WHERE (:jobs IS NULL OR j.job_uuid IN (SELECT value FROM json_each(:jobs)))
    AND (:state IS NULL OR j.state = :state)
    AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(j.tags) t WHERE t.value = :tag))
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

-- name: insert_audit(at, event, job_uuid, job_run_uuid, actor, outcome, details, digest)
INSERT INTO sys.audit (at, event, job_uuid, job_run_uuid, actor, outcome, details, digest)
VALUES (:at, :event, :job_uuid, :job_run_uuid, :actor, :outcome, :details, :digest);

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
