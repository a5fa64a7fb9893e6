-- Declarative tasks: what the catalog has of them, and what becomes of their runs when they are registered or no longer are.

-- name: lock_namespace
-- PostgreSQL takes a lock here: two that declare at once would not see each other's new jobs.
SELECT 1 WHERE :namespace IS NULL;

-- name: lock_declared_jobs
SELECT
    job_uuid, job_name, version, state, planned_until, wake_at, first_seen, paused_until, moved_slot, moved_to,
    covered_until, next_run_time, last_enqueued_at, pause_note, namespace, created_at, updated_at, registered
FROM sys.jobs
WHERE namespace = :namespace AND substr(job_name, 1, length(:prefix)) = :prefix
ORDER BY job_uuid;

-- name: declared_tasks
-- The newest run that started has the newest attempt: a task runs one at a time, and a retry ends where another run begins.
SELECT
    j.job_uuid, j.job_name, j.version, v.definition, j.state, j.pause_note, j.planned_until,
    nullif(max(
        coalesce(j.last_attempt_at, 0),
        coalesce((
            SELECT max(a.started_at) FROM sys.task_attempts a WHERE a.run_no = (
                SELECT r.run_no FROM sys.job_runs r
                WHERE r.job_uuid = j.job_uuid AND r.idempotency_key >= 'schedule:' AND r.idempotency_key < 'schedule;'
                    AND r.started_at IS NOT NULL
                ORDER BY r.idempotency_key DESC LIMIT 1
            )
        ), 0),
        coalesce((
            SELECT max(a.started_at) FROM sys.job_runs r INDEXED BY job_runs_manual
            CROSS JOIN sys.task_attempts a ON a.run_no = r.run_no
            WHERE r.job_uuid = j.job_uuid AND r.origin <> 'SCHEDULE'
        ), 0)
    ), 0),
    nullif(max(
        coalesce(j.last_success_at, 0),
        coalesce((
            SELECT r.completed_at FROM sys.job_runs r
            WHERE r.job_uuid = j.job_uuid AND r.idempotency_key >= 'schedule:' AND r.idempotency_key < 'schedule;'
                AND r.state = 'COMPLETED'
            ORDER BY r.idempotency_key DESC LIMIT 1
        ), 0),
        coalesce((
            SELECT max(r.completed_at) FROM sys.job_runs r INDEXED BY job_runs_manual
            WHERE r.job_uuid = j.job_uuid AND r.origin <> 'SCHEDULE' AND r.state = 'COMPLETED'
        ), 0)
    ), 0),
    (
        SELECT r.assigned_node_uuid FROM sys.job_runs r INDEXED BY job_runs_active
        WHERE r.job_uuid = j.job_uuid AND r.completed_at IS NULL AND r.state = 'RUNNING' ORDER BY r.run_no DESC LIMIT 1
    ),
    EXISTS (
        SELECT 1 FROM sys.job_runs r INDEXED BY job_runs_active
        CROSS JOIN sys.task_runs t ON t.run_no = r.run_no
        WHERE r.job_uuid = j.job_uuid AND r.completed_at IS NULL AND r.state = 'PENDING' AND t.reason = 'lost'
    ),
    (
        SELECT json_array(r.job_run_uuid, t.retry_at) FROM sys.job_runs r INDEXED BY job_runs_active
        CROSS JOIN sys.task_runs t ON t.run_no = r.run_no
        WHERE r.job_uuid = j.job_uuid AND r.completed_at IS NULL AND r.state = 'PENDING' AND t.retry_at IS NOT NULL
            AND t.reason <> 'lost'
        ORDER BY r.run_no DESC LIMIT 1
    )
FROM sys.jobs j
LEFT JOIN sys.job_versions v ON v.job_uuid = j.job_uuid AND v.version = j.version
WHERE j.namespace = :namespace AND substr(j.job_name, 1, length(:prefix)) = :prefix
ORDER BY j.job_name;

-- name: unowed_runs
-- Another node may have planned for a task while its scheduler was away.
SELECT r.run_no, r.job_uuid
FROM json_each(:jobs) j
CROSS JOIN sys.job_runs r INDEXED BY job_runs_active ON r.job_uuid = j.value
WHERE r.completed_at IS NULL AND r.started_at IS NULL AND r.origin = 'SCHEDULE' AND r.scheduled_time <= :until
ORDER BY r.run_no;

-- name: move_active_runs
UPDATE sys.job_runs SET version = :version WHERE job_uuid = :job AND completed_at IS NULL AND version <> :version;

-- name: hold_runs
UPDATE sys.job_runs SET state = 'PENDING', not_before = NULL, waiting_for = :waiting_for
WHERE job_uuid IN (SELECT value FROM json_each(:jobs)) AND completed_at IS NULL
    AND (state = 'PENDING' OR state = 'QUEUED');

-- name: jobs_held
SELECT DISTINCT job_uuid FROM sys.job_runs INDEXED BY job_runs_active
WHERE completed_at IS NULL AND waiting_for = :waiting_for;

-- name: let_runs_go
-- A retry waits for its time again; whatever else was held lines up, and is handed over where nothing is before it.
UPDATE sys.job_runs SET
    state = CASE WHEN EXISTS (
        SELECT 1 FROM sys.task_runs t
        WHERE t.run_no = job_runs.run_no AND t.retry_at IS NOT NULL AND t.reason <> 'lost'
    ) THEN 'PENDING' ELSE 'QUEUED' END,
    not_before = (
        SELECT max(t.retry_at) FROM sys.task_runs t
        WHERE t.run_no = job_runs.run_no AND t.retry_at IS NOT NULL AND t.reason <> 'lost'
    ),
    waiting_for = CASE WHEN EXISTS (
        SELECT 1 FROM sys.task_runs t
        WHERE t.run_no = job_runs.run_no AND t.retry_at IS NOT NULL AND t.reason <> 'lost'
    ) THEN 'retry' END
WHERE job_uuid IN (SELECT value FROM json_each(:jobs)) AND completed_at IS NULL AND state = 'PENDING'
    AND waiting_for = :waiting_for;

-- name: remember_runs
-- Before these runs are deleted: when the tasks among their jobs were last tried, and last succeeded. Of others nobody asks,
-- and a busy catalog's jobs are better left alone.
UPDATE sys.jobs SET
    last_attempt_at = max(coalesce(last_attempt_at, gone.attempted), gone.attempted),
    last_success_at = CASE
        WHEN gone.succeeded IS NULL THEN last_success_at
        ELSE max(coalesce(last_success_at, gone.succeeded), gone.succeeded)
    END
FROM (
    SELECT r.job_uuid, max(a.started_at) AS attempted, max(CASE WHEN r.state = 'COMPLETED' THEN r.completed_at END) AS succeeded
    FROM json_each(:runs) n
    CROSS JOIN sys.job_runs r ON r.run_no = n.value
    CROSS JOIN sys.task_attempts a ON a.run_no = r.run_no
    WHERE r.completed_at IS NOT NULL
    GROUP BY r.job_uuid
) AS gone
WHERE jobs.job_uuid = gone.job_uuid AND jobs.namespace = :namespace AND gone.attempted IS NOT NULL;
