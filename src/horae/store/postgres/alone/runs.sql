-- Statements that are a transaction of their own, in one trip. Only PostgreSQL can write four tables in one statement;
-- other drivers answer that they have none, and the verb goes its longer way.

-- name: claim_plain
-- The plain case of dispatching: nothing due is limited or shared, and the oldest runs have one task each that never started.
-- Where that is not so, nothing is taken and `plain` is false. The node's row is held as in before_dispatch; `taken` is
-- locked before anything of it is judged, and a row that changed meanwhile is judged as it is now.
WITH clock AS MATERIALIZED (
    SELECT :now AS now
),
holder AS MATERIALIZED (
    SELECT node_uuid FROM sys.nodes WHERE node_uuid = :node::uuid AND state = 'ALIVE' FOR SHARE
),
limits AS MATERIALIZED (
    SELECT EXISTS (
        SELECT 1 FROM sys.job_runs
        WHERE not_before <= (SELECT now FROM clock) AND limited AND (waiting_for IS NULL OR waiting_for = 'retry')
    ) OR EXISTS (
        -- Owners who share are given turns; where nobody shares this is one look at an empty index.
        SELECT 1 FROM sys.job_runs
        WHERE share IS NOT NULL AND not_before <= (SELECT now FROM clock)
            AND (waiting_for IS NULL OR waiting_for = 'retry')
    ) AS some_due
),
taken AS MATERIALIZED (
    SELECT
        r.run_no, r.not_before, r.job_uuid, r.version, r.started_at IS NULL AND r.only_tasks IS NULL AS fresh
    FROM sys.job_runs r
    WHERE r.not_before <= (SELECT now FROM clock) AND (r.waiting_for IS NULL OR r.waiting_for = 'retry')
        AND NOT r.limited
        AND (r.deadline_at IS NULL OR r.deadline_at >= (SELECT now FROM clock))
        AND (:handlers::jsonb IS NULL OR r.requires IS NULL OR r.requires::jsonb <@ :handlers::jsonb)
        AND (:faulty::jsonb IS NULL OR NOT :faulty::jsonb @> jsonb_build_array(jsonb_build_array(r.job_uuid, r.version)))
        AND (SELECT count(*) FROM holder) = 1 AND NOT (SELECT some_due FROM limits)
    ORDER BY r.not_before, r.run_no
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
),
judged AS MATERIALIZED (
    SELECT
        run_no, not_before, fresh,
        (SELECT v.plain_start FROM sys.job_versions v WHERE v.job_uuid = t.job_uuid AND v.version = t.version) AS start
    FROM taken t
),
verdict AS MATERIALIZED (
    SELECT coalesce(bool_and(fresh AND start IS NOT NULL), true) AND NOT (SELECT some_due FROM limits) AS plain FROM judged
),
started AS (
    UPDATE sys.job_runs r SET
        state = 'RUNNING', assigned_node_uuid = :node::uuid, fence = r.fence + 1, started_at = (SELECT now FROM clock),
        resumed_at = (SELECT now FROM clock), not_before = NULL, waiting_for = NULL, deadline_at = NULL,
        expires_at = (SELECT now FROM clock) + (
            SELECT (v.plain_start ->> 1)::bigint FROM sys.job_versions v
            WHERE v.job_uuid = r.job_uuid AND v.version = r.version
        )
    WHERE r.run_no = ANY (ARRAY (SELECT run_no FROM judged)) AND (SELECT plain FROM verdict)
    RETURNING
        r.run_no, r.job_run_uuid, r.job_uuid, r.version, r.scheduled_time, r.chosen_time, r.fence, r.origin,
        r.is_recovery, r.covers_from, r.covers_to, r.payload, r.spent_ms
),
tasks AS (
    INSERT INTO sys.task_runs (run_no, position, task_name, state, attempts, started_at)
    SELECT run_no, 0, start ->> 0, 'RUNNING', 1, (SELECT now FROM clock) FROM started JOIN judged USING (run_no)
),
attempts AS (
    INSERT INTO sys.task_attempts (run_no, position, attempt_no, state, node_uuid, fence, started_at)
    SELECT run_no, 0, 1, 'RUNNING', :node::uuid, fence, (SELECT now FROM clock) FROM started
)
SELECT
    clock.now, verdict.plain,
    (
        SELECT not_before FROM sys.job_runs
        WHERE not_before > (SELECT now FROM clock) AND (waiting_for IS NULL OR waiting_for = 'retry')
        ORDER BY not_before LIMIT 1
    ),
    started.run_no, job_run_uuid, job_uuid, version, scheduled_time, chosen_time, fence, origin, is_recovery,
    covers_from, covers_to, payload, spent_ms
FROM clock CROSS JOIN verdict LEFT JOIN started ON true LEFT JOIN judged ON judged.run_no = started.run_no
ORDER BY judged.not_before, started.run_no;
