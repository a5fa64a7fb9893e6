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
-- An owner whom another node serves at this moment is passed over: nobody waits for a node that may be frozen.
SELECT user_uuid, window_at, window_starts FROM sys.shares
WHERE user_uuid = ANY (:owners::uuid[])
ORDER BY user_uuid
FOR UPDATE SKIP LOCKED;

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
SELECT 1 FROM sys.job_runs
WHERE not_before <= :now AND (waiting_for IS NULL OR waiting_for = 'retry')
LIMIT 1;

-- name: claimable_candidates_of
-- As claimable_candidates, of one owner.
SELECT
    run_no, job_run_uuid, job_uuid, version, state, assigned_node_uuid, fence, scheduled_time, chosen_time, started_at,
    resumed_at, spent_ms, cancel_requested_at, cancel_reason, waiting_for, origin, is_recovery, covers_from, covers_to,
    only_tasks, pool_name, payload, not_before
FROM sys.job_runs
WHERE share = :share::uuid AND share IS NOT NULL
    AND not_before <= :now AND (waiting_for IS NULL OR waiting_for = 'retry')
    AND (deadline_at IS NULL OR deadline_at >= :now)
    AND (:handlers::jsonb IS NULL OR requires IS NULL OR requires::jsonb <@ :handlers::jsonb)
    AND (pool_name IS NULL OR :full_pools::jsonb IS NULL OR NOT :full_pools::jsonb ? pool_name)
    AND (job_uuid, version) NOT IN (
        SELECT (each ->> 0)::uuid, (each ->> 1)::bigint FROM jsonb_array_elements(:passed_over::jsonb) each
    )
    AND (not_before, run_no) > (:after, :last)
ORDER BY not_before, run_no
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: claimable_candidates_unshared
-- As claimable_candidates, of `local` and of those who were the only owner when the run was born.
SELECT
    run_no, job_run_uuid, job_uuid, version, state, assigned_node_uuid, fence, scheduled_time, chosen_time, started_at,
    resumed_at, spent_ms, cancel_requested_at, cancel_reason, waiting_for, origin, is_recovery, covers_from, covers_to,
    only_tasks, pool_name, payload, not_before
FROM sys.job_runs
WHERE share IS NULL
    AND not_before <= :now AND (waiting_for IS NULL OR waiting_for = 'retry')
    AND (deadline_at IS NULL OR deadline_at >= :now)
    AND (:handlers::jsonb IS NULL OR requires IS NULL OR requires::jsonb <@ :handlers::jsonb)
    AND (pool_name IS NULL OR :full_pools::jsonb IS NULL OR NOT :full_pools::jsonb ? pool_name)
    AND (job_uuid, version) NOT IN (
        SELECT (each ->> 0)::uuid, (each ->> 1)::bigint FROM jsonb_array_elements(:passed_over::jsonb) each
    )
    AND (not_before, run_no) > (:after, :last)
ORDER BY not_before, run_no
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: serve_shares(user_uuid uuid, served_at bigint, window_at bigint, window_starts bigint)
-- Whose row another node holds is not waited for. Those whose starts are counted are locked already.
UPDATE sys.shares s SET
    served_at = given.served_at, window_at = given.window_at, window_starts = given.window_starts
FROM :rows
JOIN (
    SELECT user_uuid FROM sys.shares WHERE user_uuid IN (SELECT user_uuid FROM :rows)
    ORDER BY user_uuid
    FOR UPDATE SKIP LOCKED
) free ON free.user_uuid = given.user_uuid
WHERE s.user_uuid = given.user_uuid;

-- name: upsert_shares(user_uuid uuid, is_shared boolean, is_limited boolean)
INSERT INTO sys.shares (user_uuid, is_shared, is_limited) SELECT user_uuid, is_shared, is_limited FROM :rows
ON CONFLICT (user_uuid) DO UPDATE SET is_shared = excluded.is_shared, is_limited = excluded.is_limited;

-- name: limit_shares(user_uuid uuid, max_jobs bigint, max_running bigint, max_starts bigint, max_storage bigint)
INSERT INTO sys.shares (user_uuid, max_jobs, max_running, max_starts, max_storage)
SELECT user_uuid, max_jobs, max_running, max_starts, max_storage FROM :rows
ON CONFLICT (user_uuid) DO UPDATE SET
    max_jobs = excluded.max_jobs, max_running = excluded.max_running, max_starts = excluded.max_starts,
    max_storage = excluded.max_storage;

-- name: measure_shares(user_uuid uuid, stored_bytes bigint, measured_at bigint)
UPDATE sys.shares s SET stored_bytes = given.stored_bytes, measured_at = given.measured_at
FROM :rows
WHERE s.user_uuid = given.user_uuid;

-- name: delete_share
DELETE FROM sys.shares WHERE user_uuid = :user::uuid;

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
-- Whoever only sees to it that they stay goes on. sys.shares is not locked for this: claims would pass its owners over.
SELECT user_uuid FROM sys.users WHERE user_uuid = ANY (:owners::uuid[])
ORDER BY user_uuid
FOR NO KEY UPDATE;

-- name: count_jobs_of
SELECT count(*) FROM sys.jobs
WHERE created_by_user_uuid = :user::uuid AND created_by_user_uuid <> 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6';

-- name: share_runs_of
-- Runs that wait while their owner begins to share, or their job is given to another.
UPDATE sys.job_runs r SET share = s.user_uuid
FROM sys.jobs j
LEFT JOIN sys.shares s ON s.user_uuid = j.created_by_user_uuid AND s.is_shared
    AND s.user_uuid <> 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6'
WHERE r.job_uuid = j.job_uuid AND r.completed_at IS NULL
    AND (j.job_uuid = ANY (:jobs::uuid[]) OR j.created_by_user_uuid = ANY (:owners::uuid[]))
    AND r.share IS DISTINCT FROM s.user_uuid;

-- name: stored_by
-- Output, results and payloads of runs.
SELECT
    coalesce((
        SELECT sum(octet_length(o.text)) FROM sys.jobs j
        JOIN sys.job_runs r ON r.job_uuid = j.job_uuid JOIN sys.attempt_output o ON o.run_no = r.run_no
        WHERE j.created_by_user_uuid = :user::uuid
            AND j.created_by_user_uuid <> 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6'
    ), 0) + coalesce((
        SELECT sum(octet_length(t.result)) FROM sys.jobs j
        JOIN sys.job_runs r ON r.job_uuid = j.job_uuid JOIN sys.task_runs t ON t.run_no = r.run_no
        WHERE j.created_by_user_uuid = :user::uuid
            AND j.created_by_user_uuid <> 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6'
    ), 0) + coalesce((
        SELECT sum(coalesce(octet_length(r.payload), 0) + coalesce(octet_length(r.result_data), 0)) FROM sys.jobs j
        JOIN sys.job_runs r ON r.job_uuid = j.job_uuid
        WHERE j.created_by_user_uuid = :user::uuid
            AND j.created_by_user_uuid <> 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6'
    ), 0);
