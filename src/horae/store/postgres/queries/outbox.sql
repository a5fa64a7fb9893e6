-- Hooks, and the ends of runs that they are to be called with.

-- name: upsert_hook
INSERT INTO sys.hooks (hook_id, job_uuid, job_name, states, seen_at) VALUES (:hook, :job::uuid, :name, :states, :now)
ON CONFLICT (hook_id) DO UPDATE SET states = excluded.states, seen_at = excluded.seen_at;

-- name: drop_notices_of
DELETE FROM sys.outbox WHERE hook_id = ANY (:hooks::text[]);

-- name: drop_hooks
DELETE FROM sys.hooks WHERE hook_id = ANY (:hooks::text[]);

-- name: list_hooks
SELECT h.hook_id, h.job_name, h.states, h.seen_at, count(o.notice_no), min(o.completed_at)
FROM sys.hooks h
LEFT JOIN sys.outbox o ON o.hook_id = h.hook_id
GROUP BY h.hook_id
ORDER BY h.hook_id;

-- name: claim_notices
UPDATE sys.outbox SET claimed_by = :node::uuid
WHERE notice_no IN (
    SELECT notice_no FROM sys.outbox o
    WHERE hook_id = ANY (:hooks::text[]) AND NOT notice_no = ANY (:held::bigint[])
        AND EXISTS (SELECT 1 FROM sys.nodes n WHERE n.node_uuid = :node::uuid AND n.state = 'ALIVE')
        AND (
            claimed_by IS NULL OR claimed_by = :node::uuid
            OR NOT EXISTS (SELECT 1 FROM sys.nodes n WHERE n.node_uuid = o.claimed_by AND n.state = 'ALIVE')
        )
    ORDER BY notice_no
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING notice_no;

-- name: read_notices
SELECT
    o.notice_no, o.hook_id, o.job_run_uuid, coalesce(j.job_name, t.job_name, ''), o.state, o.scheduled_time,
    o.chosen_time, o.started_at, o.completed_at, o.version, o.origin, o.is_recovery, o.covers_from, o.covers_to,
    o.covers_count, o.replay_of, o.cancelled_by, o.reason
FROM sys.outbox o
LEFT JOIN sys.jobs j ON j.job_uuid = o.job_uuid
LEFT JOIN sys.job_tombstones t ON t.job_uuid = o.job_uuid
WHERE o.notice_no = ANY (:notices::bigint[])
ORDER BY o.notice_no;

-- name: delete_notices
DELETE FROM sys.outbox WHERE notice_no = ANY (:notices::bigint[]) AND claimed_by = :node::uuid
RETURNING notice_no;

-- name: expire_notices
DELETE FROM sys.outbox WHERE completed_at < :before;

-- name: expire_hooks
DELETE FROM sys.hooks WHERE seen_at < :before;
