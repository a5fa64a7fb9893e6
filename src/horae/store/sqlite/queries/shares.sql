-- Shares: limits of owners, and whose turn it is. There are as many rows as owners, and a catalog of `local`'s has none.

-- name: read_shares
SELECT
    s.user_uuid, coalesce(u.user_name, ''), s.max_jobs, s.max_running, s.max_starts, s.max_storage, s.is_shared,
    s.is_limited, s.served_at, s.window_at, s.window_starts, s.stored_bytes, s.measured_at
FROM sys.shares s
LEFT JOIN sys.users u ON u.user_uuid = s.user_uuid
ORDER BY s.user_uuid;

-- name: shares_due
SELECT s.user_uuid FROM sys.shares s
WHERE EXISTS (
    SELECT 1 FROM sys.job_runs r
    WHERE r.share = s.user_uuid AND r.share IS NOT NULL AND r.not_before <= :now
        AND (r.waiting_for IS NULL OR r.waiting_for = 'retry')
)
ORDER BY s.user_uuid;

-- name: lock_shares
-- There is one writer: nothing is to be locked.
SELECT user_uuid, window_at, window_starts FROM sys.shares
WHERE user_uuid IN (SELECT value FROM json_each(:owners))
ORDER BY user_uuid;

-- name: running_of_owners
-- A run whose thread still works keeps its place, though it has ended or is to be tried again.
SELECT j.created_by_user_uuid, count(*) FROM (
    SELECT job_uuid, run_no FROM sys.job_runs WHERE completed_at IS NULL AND state = 'RUNNING'
    UNION
    SELECT job_uuid, run_no FROM sys.run_threads
) under_way
JOIN sys.jobs j ON j.job_uuid = under_way.job_uuid
GROUP BY j.created_by_user_uuid;

-- name: some_run_is_due
SELECT 1 FROM sys.job_runs INDEXED BY job_runs_claim
WHERE not_before <= :now AND (waiting_for IS NULL OR waiting_for = 'retry')
LIMIT 1;

-- name: claimable_candidates_of
-- As claimable_candidates, of one owner.
SELECT
    run_no, job_run_uuid, job_uuid, version, state, assigned_node_uuid, fence, scheduled_time, chosen_time, started_at,
    resumed_at, spent_ms, cancel_requested_at, cancel_reason, waiting_for, origin, is_recovery, covers_from, covers_to,
    only_tasks, pool_name, payload, not_before
FROM sys.job_runs INDEXED BY job_runs_share
WHERE share = :share AND share IS NOT NULL
    AND not_before <= :now AND (waiting_for IS NULL OR waiting_for = 'retry')
    AND (deadline_at IS NULL OR deadline_at >= :now)
    AND (:handlers IS NULL OR requires IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(requires) n WHERE n.value NOT IN (SELECT value FROM json_each(:handlers))
    ))
    AND (pool_name IS NULL OR pool_name NOT IN (SELECT value FROM json_each(:full_pools)))
    AND (job_uuid, version) NOT IN (SELECT value ->> 0, value ->> 1 FROM json_each(:passed_over))
    AND (not_before, run_no) > (:after, :last)
ORDER BY not_before, run_no
LIMIT :limit;

-- name: claimable_candidates_unshared
-- As claimable_candidates, of `local` and of those who were the only owner when the run was born.
SELECT
    run_no, job_run_uuid, job_uuid, version, state, assigned_node_uuid, fence, scheduled_time, chosen_time, started_at,
    resumed_at, spent_ms, cancel_requested_at, cancel_reason, waiting_for, origin, is_recovery, covers_from, covers_to,
    only_tasks, pool_name, payload, not_before
FROM sys.job_runs INDEXED BY job_runs_claim
WHERE share IS NULL
    AND not_before <= :now AND (waiting_for IS NULL OR waiting_for = 'retry')
    AND (deadline_at IS NULL OR deadline_at >= :now)
    AND (:handlers IS NULL OR requires IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(requires) n WHERE n.value NOT IN (SELECT value FROM json_each(:handlers))
    ))
    AND (pool_name IS NULL OR pool_name NOT IN (SELECT value FROM json_each(:full_pools)))
    AND (job_uuid, version) NOT IN (SELECT value ->> 0, value ->> 1 FROM json_each(:passed_over))
    AND (not_before, run_no) > (:after, :last)
ORDER BY not_before, run_no
LIMIT :limit;

-- name: serve_shares(user_uuid, served_at, window_at, window_starts)
UPDATE sys.shares SET served_at = :served_at, window_at = :window_at, window_starts = :window_starts
WHERE user_uuid = :user_uuid;

-- name: upsert_shares(user_uuid, is_shared, is_limited)
INSERT INTO sys.shares (user_uuid, is_shared, is_limited) VALUES (:user_uuid, :is_shared, :is_limited)
ON CONFLICT (user_uuid) DO UPDATE SET is_shared = excluded.is_shared, is_limited = excluded.is_limited;

-- name: limit_shares(user_uuid, max_jobs, max_running, max_starts, max_storage)
INSERT INTO sys.shares (user_uuid, max_jobs, max_running, max_starts, max_storage)
VALUES (:user_uuid, :max_jobs, :max_running, :max_starts, :max_storage)
ON CONFLICT (user_uuid) DO UPDATE SET
    max_jobs = excluded.max_jobs, max_running = excluded.max_running, max_starts = excluded.max_starts,
    max_storage = excluded.max_storage;

-- name: measure_shares(user_uuid, stored_bytes, measured_at)
UPDATE sys.shares SET stored_bytes = :stored_bytes, measured_at = :measured_at WHERE user_uuid = :user_uuid;

-- name: delete_share
DELETE FROM sys.shares WHERE user_uuid = :user;

-- name: owners_of_jobs
-- All but `local`.
SELECT u.user_uuid, u.user_name FROM sys.users u
WHERE EXISTS (
    SELECT 1 FROM sys.jobs j
    WHERE j.created_by_user_uuid = u.user_uuid
        AND j.created_by_user_uuid <> 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6'
)
ORDER BY u.user_uuid;

-- name: local_has_jobs
SELECT 1 FROM sys.jobs WHERE created_by_user_uuid = 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6' LIMIT 1;

-- name: lock_owners
-- There is one writer: nothing is to be locked.
SELECT user_uuid FROM sys.users WHERE user_uuid IN (SELECT value FROM json_each(:owners)) ORDER BY user_uuid;

-- name: count_jobs_of
SELECT count(*) FROM sys.jobs
WHERE created_by_user_uuid = :user AND created_by_user_uuid <> 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6';

-- name: share_runs_of
-- Runs that wait while their owner begins to share, or their job is given to another.
UPDATE sys.job_runs SET share = (
    SELECT s.user_uuid FROM sys.jobs j
    JOIN sys.shares s ON s.user_uuid = j.created_by_user_uuid AND s.is_shared = 1
        AND s.user_uuid <> 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6'
    WHERE j.job_uuid = job_runs.job_uuid
)
WHERE completed_at IS NULL AND job_uuid IN (
    SELECT value FROM json_each(:jobs)
    UNION
    SELECT job_uuid FROM sys.jobs WHERE created_by_user_uuid IN (SELECT value FROM json_each(:owners))
);

-- name: stored_by
-- Output, results and payloads of runs.
SELECT
    coalesce((
        SELECT sum(octet_length(o.text)) FROM sys.jobs j
        JOIN sys.job_runs r ON r.job_uuid = j.job_uuid JOIN sys.attempt_output o ON o.run_no = r.run_no
        WHERE j.created_by_user_uuid = :user
            AND j.created_by_user_uuid <> 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6'
    ), 0) + coalesce((
        SELECT sum(octet_length(t.result)) FROM sys.jobs j
        JOIN sys.job_runs r ON r.job_uuid = j.job_uuid JOIN sys.task_runs t ON t.run_no = r.run_no
        WHERE j.created_by_user_uuid = :user
            AND j.created_by_user_uuid <> 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6'
    ), 0) + coalesce((
        SELECT sum(coalesce(octet_length(r.payload), 0) + coalesce(octet_length(r.result_data), 0)) FROM sys.jobs j
        JOIN sys.job_runs r ON r.job_uuid = j.job_uuid
        WHERE j.created_by_user_uuid = :user
            AND j.created_by_user_uuid <> 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6'
    ), 0);
