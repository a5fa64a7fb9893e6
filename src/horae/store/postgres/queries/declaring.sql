-- Declarative tasks: what the catalog has of them, and what becomes of their runs when they are registered or no longer are.

-- name: lock_namespace
-- Two that declare at once would not see each other's new jobs.
INSERT INTO sys.locks AS l (lock_name) VALUES ('declares ' || :namespace::text)
ON CONFLICT (lock_name) DO UPDATE SET lock_name = excluded.lock_name;

-- name: lock_declared_jobs
SELECT
    job_uuid, job_name, version, state, planned_until, wake_at, first_seen, paused_until, moved_slot, moved_to,
    covered_until, next_run_time, last_enqueued_at, pause_note, namespace, created_at, updated_at, registered
FROM sys.jobs
WHERE namespace = :namespace AND substr(job_name, 1, length(:prefix::text)) = :prefix::text
ORDER BY job_uuid
FOR UPDATE;

-- name: declared_tasks
-- The newest run that started has the newest attempt: a task runs one at a time, and a retry ends where another run begins.
SELECT
    j.job_uuid, j.job_name, j.version, v.definition, j.state, j.pause_note, j.planned_until,
    greatest(
        j.last_attempt_at,
        (
            SELECT max(a.started_at) FROM sys.task_attempts a WHERE a.run_no = (
                SELECT r.run_no FROM sys.job_runs r
                WHERE r.job_uuid = j.job_uuid AND r.idempotency_key >= 'schedule:' AND r.idempotency_key < 'schedule;'
                    AND r.started_at IS NOT NULL
                ORDER BY r.idempotency_key DESC LIMIT 1
            )
        ),
        (
            SELECT max(a.started_at) FROM sys.job_runs r JOIN sys.task_attempts a ON a.run_no = r.run_no
            WHERE r.job_uuid = j.job_uuid AND r.origin <> 'SCHEDULE'
        )
    ),
    greatest(
        j.last_success_at,
        (
            SELECT r.completed_at FROM sys.job_runs r
            WHERE r.job_uuid = j.job_uuid AND r.idempotency_key >= 'schedule:' AND r.idempotency_key < 'schedule;'
                AND r.state = 'COMPLETED'
            ORDER BY r.idempotency_key DESC LIMIT 1
        ),
        (
            SELECT max(r.completed_at) FROM sys.job_runs r
            WHERE r.job_uuid = j.job_uuid AND r.origin <> 'SCHEDULE' AND r.state = 'COMPLETED'
        )
    ),
    (
        SELECT r.assigned_node_uuid FROM sys.job_runs r
        WHERE r.job_uuid = j.job_uuid AND r.completed_at IS NULL AND r.state = 'RUNNING' ORDER BY r.run_no DESC LIMIT 1
    ),
    EXISTS (
        SELECT 1 FROM sys.job_runs r JOIN sys.task_runs t ON t.run_no = r.run_no
        WHERE r.job_uuid = j.job_uuid AND r.completed_at IS NULL AND r.state = 'PENDING' AND t.reason = 'lost'
    ),
    (
        SELECT json_build_array(r.job_run_uuid, t.retry_at)::text
        FROM sys.job_runs r JOIN sys.task_runs t ON t.run_no = r.run_no
        WHERE r.job_uuid = j.job_uuid AND r.completed_at IS NULL AND r.state = 'PENDING' AND t.retry_at IS NOT NULL
            AND t.reason <> 'lost'
        ORDER BY r.run_no DESC LIMIT 1
    )
FROM sys.jobs j
LEFT JOIN sys.job_versions v ON v.job_uuid = j.job_uuid AND v.version = j.version
WHERE j.namespace = :namespace AND substr(j.job_name, 1, length(:prefix::text)) = :prefix::text
ORDER BY j.job_name COLLATE "C";

-- name: unowed_runs
-- Another node may have planned for a task while its scheduler was away.
SELECT run_no, job_uuid FROM sys.job_runs
WHERE job_uuid = ANY (:jobs::uuid[]) AND completed_at IS NULL AND started_at IS NULL AND origin = 'SCHEDULE'
    AND scheduled_time <= :until
ORDER BY run_no
FOR UPDATE;

-- name: move_active_runs
UPDATE sys.job_runs SET version = :version
WHERE job_uuid = :job::uuid AND completed_at IS NULL AND version <> :version;

-- name: hold_runs
UPDATE sys.job_runs SET state = 'PENDING', not_before = NULL, waiting_for = :waiting_for
WHERE job_uuid = ANY (:jobs::uuid[]) AND completed_at IS NULL AND state IN ('PENDING', 'QUEUED');

-- name: jobs_held
SELECT DISTINCT job_uuid FROM sys.job_runs
WHERE completed_at IS NULL AND waiting_for = :waiting_for;

-- name: let_runs_go
-- A retry waits for its time again; whatever else was held lines up, and is handed over where nothing is before it.
UPDATE sys.job_runs r SET
    state = CASE WHEN held.retry_at IS NULL THEN 'QUEUED' ELSE 'PENDING' END,
    not_before = held.retry_at,
    waiting_for = CASE WHEN held.retry_at IS NOT NULL THEN 'retry' END
FROM (
    SELECT o.run_no, (
        SELECT max(t.retry_at) FROM sys.task_runs t
        WHERE t.run_no = o.run_no AND t.retry_at IS NOT NULL AND t.reason <> 'lost'
    ) AS retry_at
    FROM sys.job_runs o
    WHERE o.job_uuid = ANY (:jobs::uuid[]) AND o.completed_at IS NULL AND o.state = 'PENDING'
        AND o.waiting_for = :waiting_for
) AS held
WHERE r.run_no = held.run_no;

-- name: remember_runs
-- Before these runs are deleted: when the tasks among their jobs were last tried, and last succeeded. Of others nobody asks,
-- and a busy catalog's jobs are better left alone.
UPDATE sys.jobs j SET
    last_attempt_at = greatest(j.last_attempt_at, gone.attempted),
    last_success_at = greatest(j.last_success_at, gone.succeeded)
FROM (
    SELECT r.job_uuid, max(a.started_at) AS attempted, max(r.completed_at) FILTER (WHERE r.state = 'COMPLETED') AS succeeded
    FROM sys.job_runs r JOIN sys.task_attempts a ON a.run_no = r.run_no
    WHERE r.run_no = ANY (:runs::bigint[]) AND r.completed_at IS NOT NULL
    GROUP BY r.job_uuid
) AS gone
WHERE j.job_uuid = gone.job_uuid AND j.namespace = :namespace AND gone.attempted IS NOT NULL;
