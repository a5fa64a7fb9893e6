-- Nodes, what they own, what is old; and reading. `:rows` stands for the rows given, as `given`.

-- name: lock_node_names
INSERT INTO sys.locks AS l (lock_name) VALUES ('node_names')
ON CONFLICT (lock_name) DO UPDATE SET lock_name = excluded.lock_name;

-- name: nodes_of_name
SELECT node_uuid FROM sys.nodes WHERE node_name = :name AND state = 'ALIVE';

-- name: insert_node
INSERT INTO sys.nodes (node_uuid, node_name, state, counter, started_at, heartbeat_at, details)
VALUES (:node::uuid, :name, 'ALIVE', 0, :now, :now, :details)
ON CONFLICT (node_uuid) DO NOTHING;

-- name: beat
UPDATE sys.nodes SET counter = counter + 1, heartbeat_at = :now WHERE node_uuid = :node::uuid AND state = 'ALIVE'
RETURNING counter, EXISTS (SELECT 1 FROM sys.run_threads h WHERE h.node_uuid = :node::uuid);

-- name: bury_node
-- A session that its node left behind may hold the row: whoever takes over looks again, and waits for nothing.
UPDATE sys.nodes SET state = 'DEAD', ended_at = :now
WHERE node_uuid = (
    SELECT node_uuid FROM sys.nodes
    WHERE node_uuid = :node::uuid AND state = 'ALIVE' AND counter = :counter
    FOR UPDATE NOWAIT
)
RETURNING counter;

-- name: end_node
UPDATE sys.nodes SET state = :state, ended_at = :now WHERE node_uuid = :node::uuid AND state = 'ALIVE';

-- name: list_nodes
SELECT
    n.node_uuid, n.node_name, n.state, n.counter, n.started_at, n.heartbeat_at, n.details,
    (
        SELECT count(*) FROM sys.job_runs r
        WHERE r.completed_at IS NULL AND r.state = 'RUNNING' AND r.assigned_node_uuid = n.node_uuid
    )
FROM sys.nodes n
WHERE n.state <> 'STOPPED'
ORDER BY n.started_at, n.node_uuid;

-- name: runs_of_node
SELECT run_no, job_run_uuid, fence, CASE WHEN cancel_requested_at IS NULL THEN NULL ELSE cancel_reason END
FROM sys.job_runs
WHERE completed_at IS NULL AND state = 'RUNNING' AND assigned_node_uuid = :node::uuid
ORDER BY run_no;

-- name: runs_to_reap
SELECT run_no, job_uuid, version FROM sys.job_runs
WHERE completed_at IS NULL AND state = 'RUNNING' AND (expires_at < :now OR cancel_requested_at IS NOT NULL)
    AND run_no > :after
ORDER BY run_no
LIMIT :limit;

-- name: jobs_with_queue
SELECT DISTINCT job_uuid FROM sys.job_runs
WHERE completed_at IS NULL AND state = 'QUEUED'
ORDER BY job_uuid
LIMIT :limit;

-- name: once_jobs_to_finish
SELECT
    job_uuid, job_name, version, state, planned_until, wake_at, first_seen, paused_until, moved_slot, moved_to,
    covered_until, next_run_time, last_enqueued_at, pause_note, namespace, created_at, updated_at, registered
FROM sys.jobs
WHERE schedule_kind = 'AT' AND starts_at <= planned_until AND (state <> 'DISABLED' OR on_completion = 'DROP')
ORDER BY job_uuid
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: runs_to_forget
-- In no order: the BRIN index finds old rows by their place in the table, and sorting them all would cost more.
SELECT run_no FROM sys.job_runs
WHERE completed_at < :before
LIMIT :limit;

-- name: forget_output
DELETE FROM sys.attempt_output WHERE run_no = ANY (:runs::bigint[]);

-- name: forget_windows
DELETE FROM sys.run_windows WHERE run_no = ANY (:runs::bigint[]);

-- name: forget_attempts
DELETE FROM sys.task_attempts WHERE run_no = ANY (:runs::bigint[]);

-- name: forget_tasks
DELETE FROM sys.task_runs WHERE run_no = ANY (:runs::bigint[]);

-- name: forget_runs
DELETE FROM sys.job_runs WHERE run_no = ANY (:runs::bigint[]) AND completed_at IS NOT NULL;

-- name: history_of_jobs
SELECT run_no FROM sys.job_runs
WHERE job_uuid = ANY (:jobs::uuid[]) AND completed_at IS NOT NULL
LIMIT :limit;

-- name: insert_output(run_no bigint, position bigint, attempt_no bigint, chunk_no bigint, attempt_uuid uuid, written_at bigint, text text)
INSERT INTO sys.attempt_output (run_no, position, attempt_no, chunk_no, attempt_uuid, written_at, text)
SELECT run_no, position, attempt_no, chunk_no, attempt_uuid, written_at, text FROM :rows
ON CONFLICT (run_no, position, attempt_no, chunk_no) DO NOTHING;

-- name: read_output
SELECT o.text
FROM sys.attempt_output f
JOIN sys.attempt_output o ON o.run_no = f.run_no AND o.position = f.position AND o.attempt_no = f.attempt_no
WHERE f.attempt_uuid = :attempt::uuid AND f.chunk_no = 0
ORDER BY o.chunk_no;

-- name: list_runs
SELECT
    r.job_uuid,
    r.job_run_uuid, coalesce(j.job_name, t.job_name, ''), r.state, r.scheduled_time, r.chosen_time, r.origin, r.version,
    r.fence, r.created_at, r.idempotency_key, r.not_before, r.waiting_for, r.started_at, r.completed_at,
    r.assigned_node_uuid, r.reason, r.is_recovery, r.covers_from, r.covers_to, r.covers_count, r.replay_of,
    r.cancel_requested_at, r.cancelled_by, r.retry_count, r.replay_reason,
    (SELECT a.error_message FROM sys.task_attempts a WHERE a.run_no = r.run_no AND a.error_message IS NOT NULL
     ORDER BY a.position DESC, a.attempt_no DESC LIMIT 1),
    r.payload
FROM sys.job_runs r
LEFT JOIN sys.jobs j ON j.job_uuid = r.job_uuid
LEFT JOIN sys.job_tombstones t ON t.job_uuid = r.job_uuid
WHERE r.run_no < :before AND (:state::text IS NULL OR r.state = :state)
ORDER BY r.run_no DESC
LIMIT :limit;

-- name: list_runs_of_job
SELECT
    r.job_uuid,
    r.job_run_uuid, coalesce(j.job_name, t.job_name, ''), r.state, r.scheduled_time, r.chosen_time, r.origin, r.version,
    r.fence, r.created_at, r.idempotency_key, r.not_before, r.waiting_for, r.started_at, r.completed_at,
    r.assigned_node_uuid, r.reason, r.is_recovery, r.covers_from, r.covers_to, r.covers_count, r.replay_of,
    r.cancel_requested_at, r.cancelled_by, r.retry_count, r.replay_reason,
    (SELECT a.error_message FROM sys.task_attempts a WHERE a.run_no = r.run_no AND a.error_message IS NOT NULL
     ORDER BY a.position DESC, a.attempt_no DESC LIMIT 1),
    r.payload
FROM sys.job_runs r
LEFT JOIN sys.jobs j ON j.job_uuid = r.job_uuid
LEFT JOIN sys.job_tombstones t ON t.job_uuid = r.job_uuid
WHERE r.job_uuid = :job::uuid AND r.run_no < :before AND (:state::text IS NULL OR r.state = :state)
ORDER BY r.run_no DESC
LIMIT :limit;

-- name: list_active_runs
SELECT
    r.job_uuid,
    r.job_run_uuid, coalesce(j.job_name, t.job_name, ''), r.state, r.scheduled_time, r.chosen_time, r.origin, r.version,
    r.fence, r.created_at, r.idempotency_key, r.not_before, r.waiting_for, r.started_at, r.completed_at,
    r.assigned_node_uuid, r.reason, r.is_recovery, r.covers_from, r.covers_to, r.covers_count, r.replay_of,
    r.cancel_requested_at, r.cancelled_by, r.retry_count, r.replay_reason,
    (SELECT a.error_message FROM sys.task_attempts a WHERE a.run_no = r.run_no AND a.error_message IS NOT NULL
     ORDER BY a.position DESC, a.attempt_no DESC LIMIT 1),
    r.payload
FROM sys.job_runs r
LEFT JOIN sys.jobs j ON j.job_uuid = r.job_uuid
LEFT JOIN sys.job_tombstones t ON t.job_uuid = r.job_uuid
WHERE r.completed_at IS NULL AND r.run_no < :before AND (:state::text IS NULL OR r.state = :state)
    AND (:job::uuid IS NULL OR r.job_uuid = :job::uuid)
ORDER BY r.run_no DESC
LIMIT :limit;

-- name: run_by_uuid
SELECT
    r.run_no, r.job_uuid,
    r.job_run_uuid, coalesce(j.job_name, t.job_name, ''), r.state, r.scheduled_time, r.chosen_time, r.origin, r.version,
    r.fence, r.created_at, r.idempotency_key, r.not_before, r.waiting_for, r.started_at, r.completed_at,
    r.assigned_node_uuid, r.reason, r.is_recovery, r.covers_from, r.covers_to, r.covers_count, r.replay_of,
    r.cancel_requested_at, r.cancelled_by, r.retry_count, r.replay_reason,
    (SELECT a.error_message FROM sys.task_attempts a WHERE a.run_no = r.run_no AND a.error_message IS NOT NULL
     ORDER BY a.position DESC, a.attempt_no DESC LIMIT 1),
    r.payload
FROM sys.job_runs r
LEFT JOIN sys.jobs j ON j.job_uuid = r.job_uuid
LEFT JOIN sys.job_tombstones t ON t.job_uuid = r.job_uuid
WHERE r.job_run_uuid = :run::uuid;

-- name: read_tasks
SELECT position, task_name, state, reason, cancelled_by, result FROM sys.task_runs WHERE run_no = :run ORDER BY position;

-- name: read_attempts
SELECT position, attempt_no, state, started_at, ended_at, error_message, traceback
FROM sys.task_attempts WHERE run_no = :run ORDER BY position, attempt_no;

-- name: handlers_of_nodes
SELECT state, started_at, ended_at, details FROM sys.nodes WHERE state = 'ALIVE' OR ended_at > :since;

-- name: runs_without_handler
-- Runs of earlier versions that wait, whatever for, and need something that no live node has. A task that is no longer
-- registered is waited for, and so is the thread of a run's own earlier attempt.
SELECT r.run_no, r.job_uuid, r.created_at, r.version, j.version
FROM sys.job_runs r JOIN sys.jobs j ON j.job_uuid = r.job_uuid
WHERE r.completed_at IS NULL AND (r.state = 'PENDING' OR r.state = 'QUEUED') AND r.created_at <= :due
    AND (r.waiting_for IS NULL OR (r.waiting_for <> 'registration' AND r.waiting_for <> 'previous_run'))
    AND r.requires IS NOT NULL AND NOT r.requires::jsonb <@ :handlers::jsonb AND r.version <> j.version
ORDER BY r.run_no
LIMIT :limit;

-- name: move_runs(run_no bigint, version bigint, requires text, pool_name text, limited boolean, deadline_at bigint)
UPDATE sys.job_runs r SET
    version = given.version, requires = given.requires, pool_name = given.pool_name, limited = given.limited,
    deadline_at = given.deadline_at
FROM :rows WHERE r.run_no = given.run_no;

-- name: move_task
UPDATE sys.task_runs SET position = :after WHERE run_no = :run AND position = :before;

-- name: move_attempts
UPDATE sys.task_attempts SET position = :after WHERE run_no = :run AND position = :before;

-- name: move_output
UPDATE sys.attempt_output SET position = :after WHERE run_no = :run AND position = :before;

-- name: rename_task
UPDATE sys.task_runs SET task_name = :name WHERE run_no = :run AND position = :position;

-- name: rename_output
-- An attempt's id is derived from its task's name.
UPDATE sys.attempt_output SET attempt_uuid = :uuid::uuid
WHERE run_no = :run AND position = :position AND attempt_no = :attempt;

-- name: requires_of_runs
SELECT run_no, requires FROM sys.job_runs WHERE run_no = ANY (:runs::bigint[]);

-- name: describe_node
UPDATE sys.nodes SET details = :details WHERE node_uuid = :node::uuid AND state = 'ALIVE';
