-- Threads that work although their attempt has ended. There are few, so the table is read from end to end.

-- name: insert_threads(run_no, position, attempt_no, job_uuid, node, since)
INSERT INTO sys.run_threads (run_no, position, attempt_no, job_uuid, node_uuid, since)
VALUES (:run_no, :position, :attempt_no, :job_uuid, :node, :since)
ON CONFLICT (run_no, position, attempt_no) DO NOTHING;

-- name: suspect_threads(run_no, since)
-- What was not seen to stop is taken to work, until its node says otherwise.
INSERT INTO sys.run_threads (run_no, position, attempt_no, job_uuid, node_uuid, since)
SELECT a.run_no, a.position, a.attempt_no, r.job_uuid, a.node_uuid, :since
FROM sys.task_attempts a
CROSS JOIN sys.job_runs r ON r.run_no = a.run_no
CROSS JOIN sys.nodes n ON n.node_uuid = a.node_uuid
    -- A node of a release before this one would never say otherwise: it reports no hooks.
    AND (n.details IS NULL OR json_type(n.details, '$.hooks') IS NOT NULL)
WHERE a.run_no = :run_no AND a.state = 'RUNNING' AND n.state = 'ALIVE'
ON CONFLICT (run_no, position, attempt_no) DO NOTHING;

-- name: adopt_threads(run_no, position, attempt_no, job_uuid, node, since)
INSERT INTO sys.run_threads (run_no, position, attempt_no, job_uuid, node_uuid, since)
VALUES (:run_no, :position, :attempt_no, :job_uuid, :node, :since)
ON CONFLICT (run_no, position, attempt_no) DO UPDATE SET node_uuid = excluded.node_uuid;

-- name: hold_back_runs
-- Runs that might start any moment, beside the threads of their own earlier attempts.
UPDATE sys.job_runs SET waiting_for = 'previous_run'
WHERE run_no IN (SELECT value FROM json_each(:runs)) AND state = 'PENDING'
    AND (waiting_for IS NULL OR waiting_for = 'retry');

-- name: threads_of_node
SELECT run_no, position, attempt_no, job_uuid FROM sys.run_threads WHERE node_uuid = :node
ORDER BY run_no, position, attempt_no;

-- name: threads_without_node
SELECT t.run_no, t.position, t.attempt_no, t.job_uuid
FROM sys.run_threads t
LEFT JOIN sys.nodes n ON n.node_uuid = t.node_uuid
WHERE n.state IS NULL OR n.state <> 'ALIVE'
ORDER BY t.run_no, t.position, t.attempt_no
LIMIT :limit;

-- name: delete_threads(run_no, position, attempt_no)
DELETE FROM sys.run_threads WHERE run_no = :run_no AND position = :position AND attempt_no = :attempt_no;

-- name: free_runs
-- Runs that waited for nothing but the threads of their own earlier attempts.
UPDATE sys.job_runs SET
    not_before = max(coalesce(not_before, :now), :now),
    waiting_for = CASE WHEN EXISTS (
        SELECT 1 FROM sys.task_runs t WHERE t.run_no = job_runs.run_no AND t.retry_at IS NOT NULL
    ) THEN 'retry' END
WHERE run_no IN (SELECT value FROM json_each(:runs)) AND state = 'PENDING' AND waiting_for = 'previous_run'
    AND NOT EXISTS (SELECT 1 FROM sys.run_threads h WHERE h.run_no = job_runs.run_no);

-- name: forget_threads
DELETE FROM sys.run_threads WHERE run_no IN (SELECT value FROM json_each(:runs));

-- name: list_threads
SELECT
    r.job_run_uuid, coalesce(j.job_name, b.job_name, ''), t.task_name, h.attempt_no, h.node_uuid, n.node_name, h.since,
    r.pool_name
FROM sys.run_threads h
CROSS JOIN sys.job_runs r ON r.run_no = h.run_no
CROSS JOIN sys.task_runs t ON t.run_no = h.run_no AND t.position = h.position
LEFT JOIN sys.jobs j ON j.job_uuid = r.job_uuid
LEFT JOIN sys.job_tombstones b ON b.job_uuid = r.job_uuid
LEFT JOIN sys.nodes n ON n.node_uuid = h.node_uuid
ORDER BY h.run_no, h.position, h.attempt_no
LIMIT :limit;
