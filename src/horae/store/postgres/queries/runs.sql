-- Runs, their tasks and attempts: birth, claim, end. `:rows` stands for the rows given, as `given`.

-- name: look_around
-- The node's row is held: it cannot be declared dead before this transaction ends.
SELECT
    (SELECT 1 FROM sys.nodes WHERE node_uuid = :node::uuid AND state = 'ALIVE' FOR SHARE),
    EXISTS (SELECT 1 FROM sys.schedule_requests WHERE applied_at IS NULL),
    coalesce((SELECT min(deadline_at) FROM sys.job_runs WHERE deadline_at IS NOT NULL) < :now, false)
        OR EXISTS (SELECT 1 FROM sys.job_runs WHERE not_before <= :now AND waiting_for = 'window'),
    (SELECT bool_or(is_limited) FROM sys.shares WHERE is_shared);

-- name: next_wake
SELECT least(
    (
        SELECT wake_at FROM sys.jobs
        WHERE wake_at IS NOT NULL AND job_uuid <> ALL (:skip::uuid[])
        ORDER BY wake_at LIMIT 1
    ),
    (
        SELECT not_before FROM sys.job_runs
        WHERE not_before IS NOT NULL AND waiting_for = 'window' AND run_no <> ALL (:left::bigint[])
        ORDER BY not_before LIMIT 1
    ),
    -- Late is what has not started when its deadline is over.
    (
        SELECT deadline_at + 1 FROM sys.job_runs
        WHERE deadline_at IS NOT NULL
        ORDER BY deadline_at LIMIT 1
    )
);

-- name: reserve_run_numbers
-- A number of the sequence stands for 64.
SELECT number, number + 63 FROM (
    SELECT nextval('sys.run_numbers') AS number FROM generate_series(1, (:count::integer + 63) / 64)
) taken;

-- name: active_runs
SELECT
    job_uuid, run_no, job_run_uuid, state, scheduled_time, chosen_time, waiting_for, is_recovery,
    CASE WHEN state <> 'RUNNING' AND started_at IS NOT NULL
        THEN EXISTS (SELECT 1 FROM sys.task_runs t WHERE t.run_no = job_runs.run_no AND t.retry_at IS NOT NULL) ELSE false END,
    CASE WHEN waiting_for = 'previous_run' THEN (
        SELECT coalesce(n.node_name, h.node_uuid::text)
        FROM sys.run_threads h LEFT JOIN sys.nodes n ON n.node_uuid = h.node_uuid
        WHERE h.run_no = job_runs.run_no LIMIT 1
    ) END
FROM sys.job_runs
WHERE job_uuid = ANY (:jobs::uuid[]) AND completed_at IS NULL
UNION ALL
-- Runs that have ended, but for their threads: there are few of those at any time.
SELECT
    r.job_uuid, r.run_no, r.job_run_uuid, r.state, r.scheduled_time, r.chosen_time, r.waiting_for, r.is_recovery, false,
    coalesce(n.node_name, h.node_uuid::text)
FROM sys.run_threads h
JOIN sys.job_runs r ON r.run_no = h.run_no
LEFT JOIN sys.nodes n ON n.node_uuid = h.node_uuid
WHERE h.job_uuid = ANY (:jobs::uuid[]) AND r.completed_at IS NOT NULL
ORDER BY run_no;

-- name: jobs_not_alone
-- Jobs that have another run under way, that others depend on, or that fire once: only those have anything to hand over.
SELECT job_uuid FROM sys.job_runs WHERE job_uuid = ANY (:jobs::uuid[]) AND completed_at IS NULL
UNION
SELECT depends_on_job_uuid FROM sys.job_dependencies WHERE depends_on_job_uuid = ANY (:jobs::uuid[])
UNION
SELECT job_uuid FROM sys.jobs WHERE job_uuid = ANY (:jobs::uuid[]) AND schedule_kind = 'AT';

-- name: lock_runs
SELECT
    run_no, job_run_uuid, job_uuid, version, state, assigned_node_uuid, fence, scheduled_time, chosen_time, started_at,
    resumed_at, spent_ms, cancel_requested_at, cancel_reason, waiting_for, origin, is_recovery, covers_from, covers_to,
    only_tasks, pool_name, payload
FROM sys.job_runs
WHERE run_no = ANY (:runs::bigint[])
ORDER BY run_no
FOR UPDATE;

-- name: run_standing
SELECT job_run_uuid, state, assigned_node_uuid, fence FROM sys.job_runs WHERE run_no = :run;

-- name: ended_runs
SELECT
    r.job_uuid, r.version, r.state, r.covers_count, r.reason, r.is_recovery, r.job_run_uuid, r.scheduled_time,
    r.started_at, r.covers_to
FROM sys.job_runs r
WHERE r.run_no = ANY (:runs::bigint[]) AND r.completed_at IS NOT NULL;

-- name: find_runs
SELECT run_no, job_run_uuid FROM sys.job_runs WHERE job_run_uuid = ANY (:runs::uuid[]);

-- name: run_by_key
SELECT job_run_uuid, state FROM sys.job_runs WHERE job_uuid = :job::uuid AND idempotency_key = :key;

-- name: insert_runs(run_no bigint, job_run_uuid uuid, job_uuid uuid, node uuid, scheduled_time bigint, started_at bigint, completed_at bigint, state text, idempotency_key text, version bigint, origin text, chosen_time bigint, not_before bigint, waiting_for text, deadline_at bigint, fence bigint, resumed_at bigint, expires_at bigint, reason text, is_recovery boolean, covers_from bigint, covers_to bigint, covers_count bigint, replay_of uuid, only_tasks text, pool_name text, limited boolean, requires text, payload text, requested_by text, created_at bigint)
INSERT INTO sys.job_runs (
    run_no, job_run_uuid, job_uuid, assigned_node_uuid, scheduled_time, started_at, completed_at, state,
    idempotency_key, version, origin, chosen_time, not_before, waiting_for, deadline_at, fence, resumed_at, expires_at,
    reason, is_recovery, covers_from, covers_to, covers_count, replay_of, only_tasks, pool_name, limited, requires,
    payload, requested_by, created_at, share
)
SELECT
    run_no, job_run_uuid, job_uuid, node, scheduled_time, started_at, completed_at, state, idempotency_key, version,
    origin, chosen_time, not_before, waiting_for, deadline_at, fence, resumed_at, expires_at, reason, is_recovery,
    covers_from, covers_to, covers_count, replay_of, only_tasks, pool_name, limited, requires, payload,
    requested_by, created_at,
    -- Where nobody shares, one look at an empty index for all rows.
    CASE WHEN EXISTS (SELECT 1 FROM sys.shares WHERE is_shared) THEN (
        SELECT s.user_uuid FROM sys.jobs j JOIN sys.shares s ON s.user_uuid = j.created_by_user_uuid AND s.is_shared
        WHERE j.job_uuid = given.job_uuid AND s.user_uuid <> 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6'
    ) END
FROM :rows;

-- name: insert_started_runs(run_no bigint, job_run_uuid uuid, job_uuid uuid, node uuid, scheduled_time bigint, now bigint, idempotency_key text, version bigint, expires_at bigint)
-- The plain case of insert_runs: born RUNNING, everything else at its default.
INSERT INTO sys.job_runs (
    run_no, job_run_uuid, job_uuid, assigned_node_uuid, scheduled_time, started_at, state, idempotency_key, version,
    chosen_time, fence, resumed_at, expires_at, created_at
)
SELECT
    run_no, job_run_uuid, job_uuid, node, scheduled_time, now, 'RUNNING', idempotency_key, version, scheduled_time, 1,
    now, expires_at, now
FROM :rows;

-- name: insert_windows(run_no bigint, period_key text, window_start bigint, window_end bigint, chosen_time bigint, seed_hash text, distribution text, attempts bigint, reason text, core_version text, tzdata_version text)
INSERT INTO sys.run_windows (
    run_no, period_key, window_start, window_end, chosen_time, seed_hash, distribution, attempts, reason, core_version,
    tzdata_version
)
SELECT
    run_no, period_key, window_start, window_end, chosen_time, seed_hash, distribution, attempts, reason,
    core_version, tzdata_version
FROM :rows;

-- name: insert_task_runs(run_no bigint, position bigint, task_name text, state text, attempts bigint, started_at bigint)
INSERT INTO sys.task_runs (run_no, position, task_name, state, attempts, started_at)
SELECT run_no, position, task_name, state, attempts, started_at FROM :rows;

-- name: insert_attempts(run_no bigint, position bigint, attempt_no bigint, node uuid, fence bigint, started_at bigint)
INSERT INTO sys.task_attempts (run_no, position, attempt_no, state, node_uuid, fence, started_at)
SELECT run_no, position, attempt_no, 'RUNNING', node, fence, started_at FROM :rows;

-- name: before_dispatch
-- The node's row is held: it cannot be declared dead before this transaction ends.
SELECT
    (SELECT 1 FROM sys.nodes WHERE node_uuid = :node::uuid AND state = 'ALIVE' FOR SHARE),
    EXISTS (
        SELECT 1 FROM sys.job_runs
        WHERE not_before <= :now AND limited AND (waiting_for IS NULL OR waiting_for = 'retry')
    ),
    (
        SELECT not_before FROM sys.job_runs
        WHERE not_before > :now AND (waiting_for IS NULL OR waiting_for = 'retry')
        ORDER BY not_before LIMIT 1
    ),
    EXISTS (
        SELECT 1 FROM sys.job_runs
        WHERE share IS NOT NULL AND not_before <= :now AND (waiting_for IS NULL OR waiting_for = 'retry')
    );

-- name: claimable_runs
SELECT
    run_no, job_run_uuid, job_uuid, version, state, assigned_node_uuid, fence, scheduled_time, chosen_time, started_at,
    resumed_at, spent_ms, cancel_requested_at, cancel_reason, waiting_for, origin, is_recovery, covers_from, covers_to,
    only_tasks, pool_name, payload
FROM sys.job_runs
WHERE not_before <= :now AND (waiting_for IS NULL OR waiting_for = 'retry') AND NOT limited
    AND (deadline_at IS NULL OR deadline_at >= :now)
    AND (:handlers::jsonb IS NULL OR requires IS NULL OR requires::jsonb <@ :handlers::jsonb)
    AND (:faulty::jsonb IS NULL OR NOT :faulty::jsonb @> jsonb_build_array(jsonb_build_array(job_uuid, version)))
ORDER BY not_before, run_no
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: claimable_candidates
-- Without pools that are known to be full, and versions of jobs that are full or cannot be read here.
SELECT
    run_no, job_run_uuid, job_uuid, version, state, assigned_node_uuid, fence, scheduled_time, chosen_time, started_at,
    resumed_at, spent_ms, cancel_requested_at, cancel_reason, waiting_for, origin, is_recovery, covers_from, covers_to,
    only_tasks, pool_name, payload, not_before
FROM sys.job_runs
WHERE not_before <= :now AND (waiting_for IS NULL OR waiting_for = 'retry')
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

-- name: lock_pools
-- The last column says whether it was to be had: another claim may hold it, and be stopped for ever. None is waited for.
SELECT p.pool_name, coalesce(held.max_running, p.max_running), held.pool_name IS NOT NULL
FROM sys.pools p
LEFT JOIN (
    SELECT pool_name, max_running FROM sys.pools
    WHERE pool_name IN (SELECT r.pool_name FROM sys.job_runs r WHERE r.not_before <= :now AND r.limited)
    ORDER BY pool_name
    FOR UPDATE SKIP LOCKED
) held ON held.pool_name = p.pool_name;

-- name: lock_limited_jobs
-- Those that were to be had: none is waited for.
SELECT job_uuid FROM sys.jobs
WHERE job_uuid IN (SELECT job_uuid FROM sys.job_runs WHERE not_before <= :now AND limited)
ORDER BY job_uuid
FOR UPDATE SKIP LOCKED;

-- name: running_in_pools
-- A run whose thread still works keeps its place, though it has ended or is to be tried again.
SELECT pool_name, count(*) FROM (
    SELECT pool_name, run_no FROM sys.job_runs
    WHERE completed_at IS NULL AND state = 'RUNNING' AND pool_name IS NOT NULL
    UNION
    SELECT r.pool_name, r.run_no FROM sys.run_threads h JOIN sys.job_runs r ON r.run_no = h.run_no
    WHERE r.pool_name IS NOT NULL
) under_way
GROUP BY pool_name;

-- name: running_in_jobs
-- A run whose thread still works counts, though it has ended or is to be tried again.
SELECT job_uuid, count(*) FROM (
    SELECT job_uuid, run_no FROM sys.job_runs
    WHERE job_uuid = ANY (:jobs::uuid[]) AND completed_at IS NULL AND state = 'RUNNING'
    UNION
    SELECT job_uuid, run_no FROM sys.run_threads WHERE job_uuid = ANY (:jobs::uuid[])
) under_way
GROUP BY job_uuid;

-- name: start_runs(run_no bigint, node uuid, now bigint, expires_at bigint, retries bigint)
UPDATE sys.job_runs r SET
    state = 'RUNNING', assigned_node_uuid = given.node, fence = r.fence + 1,
    started_at = coalesce(r.started_at, given.now), resumed_at = given.now, expires_at = given.expires_at,
    not_before = NULL, waiting_for = NULL, deadline_at = NULL, retry_count = r.retry_count + given.retries
FROM :rows
WHERE r.run_no = given.run_no AND r.state = 'PENDING';

-- name: finish_runs(run_no bigint, state text, now bigint, reason text, result_message text, rows_affected bigint, error_code integer, data text)
UPDATE sys.job_runs r SET
    state = given.state, completed_at = given.now, result_message = given.result_message,
    -- A release before the column writes a replay's reason into `reason`.
    replay_reason = CASE WHEN r.origin = 'REPLAY' THEN coalesce(r.replay_reason, r.reason) END, reason = given.reason,
    rows_affected = given.rows_affected, error_code = given.error_code, result_data = convert_to(given.data, 'UTF8'),
    spent_ms = r.spent_ms + given.now - r.resumed_at
FROM :rows
WHERE r.run_no = given.run_no AND r.state = 'RUNNING';

-- name: finish_plain_runs(run_no bigint, node uuid, fence bigint, now bigint, rows_affected bigint)
-- The plain case of finish_runs, which compares owner and fence itself instead of reading them first.
UPDATE sys.job_runs r SET
    state = 'COMPLETED', completed_at = given.now, reason = NULL, rows_affected = given.rows_affected,
    replay_reason = CASE WHEN r.origin = 'REPLAY' THEN coalesce(r.replay_reason, r.reason) END,
    spent_ms = r.spent_ms + given.now - r.resumed_at
FROM :rows
WHERE r.run_no = given.run_no AND r.fence = given.fence AND r.assigned_node_uuid = given.node AND r.state = 'RUNNING';

-- name: finish_plain_tasks(run_no bigint, attempt_no bigint, now bigint, result text)
UPDATE sys.task_runs t SET state = 'SUCCESS', completed_at = given.now, result = given.result
FROM :rows
WHERE t.run_no = given.run_no AND t.position = 0 AND t.attempts = given.attempt_no AND t.state = 'RUNNING';

-- name: finish_plain_attempts(run_no bigint, attempt_no bigint, now bigint)
UPDATE sys.task_attempts a SET state = 'SUCCESS', ended_at = given.now
FROM :rows
WHERE a.run_no = given.run_no AND a.position = 0 AND a.attempt_no = given.attempt_no AND a.state = 'RUNNING';

-- name: end_runs(run_no bigint, state text, now bigint, reason text, by text, fence_up boolean)
UPDATE sys.job_runs r SET
    state = given.state, completed_at = given.now, reason = given.reason, not_before = NULL, waiting_for = NULL,
    deadline_at = NULL, cancelled_by = coalesce(given.by, r.cancelled_by), fence = r.fence + given.fence_up::integer
FROM :rows
WHERE r.run_no = given.run_no AND r.completed_at IS NULL;

-- name: park_runs(run_no bigint, not_before bigint, waiting_for text, now bigint, requires text, unread boolean)
-- A node that cannot read the run's definition leaves what it requires as it is.
UPDATE sys.job_runs r SET
    state = 'PENDING', not_before = given.not_before, waiting_for = given.waiting_for, assigned_node_uuid = NULL,
    spent_ms = r.spent_ms + given.now - r.resumed_at, resumed_at = NULL, expires_at = NULL,
    requires = CASE WHEN given.unread THEN coalesce(r.requires, given.requires) ELSE given.requires END,
    cancel_requested_at = NULL, cancel_reason = NULL, cancelled_by = NULL
FROM :rows
WHERE r.run_no = given.run_no AND r.state = 'RUNNING';

-- name: ready_runs(run_no bigint, not_before bigint)
UPDATE sys.job_runs r SET state = 'PENDING', not_before = given.not_before, waiting_for = NULL
FROM :rows
WHERE r.run_no = given.run_no AND r.state IN ('PENDING', 'QUEUED');

-- name: queue_runs(run_no bigint)
UPDATE sys.job_runs r SET state = 'QUEUED', not_before = NULL, waiting_for = NULL
FROM :rows
WHERE r.run_no = given.run_no AND r.state = 'PENDING';

-- name: recover_runs(run_no bigint)
UPDATE sys.job_runs r SET is_recovery = true FROM :rows WHERE r.run_no = given.run_no AND r.state = 'PENDING';

-- name: wait_runs(run_no bigint, waiting_for text)
UPDATE sys.job_runs r SET state = 'PENDING', not_before = NULL, waiting_for = given.waiting_for
FROM :rows
WHERE r.run_no = given.run_no AND r.state IN ('PENDING', 'QUEUED');

-- name: delete_runs(run_no bigint)
DELETE FROM sys.job_runs USING :rows WHERE job_runs.run_no = given.run_no;

-- name: note_replays(run_no bigint, reason text)
UPDATE sys.job_runs r SET replay_reason = given.reason FROM :rows WHERE r.run_no = given.run_no;

-- name: request_cancels(run_no bigint, now bigint, reason text, by text)
UPDATE sys.job_runs r SET cancel_requested_at = given.now, cancel_reason = given.reason, cancelled_by = given.by
FROM :rows
WHERE r.run_no = given.run_no AND r.state = 'RUNNING' AND r.cancel_requested_at IS NULL;

-- name: count_retries(run_no bigint, retries bigint)
UPDATE sys.job_runs r SET retry_count = r.retry_count + given.retries
FROM :rows
WHERE r.run_no = given.run_no;

-- name: read_task_runs
SELECT run_no, position, task_name, state, attempts, failures, lost, retry_at, reason, cancelled_by
FROM sys.task_runs
WHERE run_no = ANY (:runs::bigint[])
ORDER BY run_no, position;

-- name: update_task_runs(run_no bigint, position bigint, state text, attempts bigint, failures bigint, lost bigint, retry_at bigint, started_at bigint, completed_at bigint, result text, reason text, cancelled_by text)
UPDATE sys.task_runs t SET
    state = given.state, attempts = given.attempts, failures = given.failures, lost = given.lost,
    retry_at = given.retry_at, started_at = coalesce(t.started_at, given.started_at),
    completed_at = given.completed_at, result = coalesce(given.result, t.result), reason = given.reason,
    cancelled_by = given.cancelled_by
FROM :rows
WHERE t.run_no = given.run_no AND t.position = given.position;

-- name: end_attempts(run_no bigint, position bigint, attempt_no bigint, state text, ended_at bigint, error_code integer, error_message text, traceback text)
UPDATE sys.task_attempts a SET
    state = given.state, ended_at = given.ended_at, error_code = given.error_code, error_message = given.error_message,
    traceback = given.traceback
FROM :rows
WHERE a.run_no = given.run_no AND a.position = given.position AND a.attempt_no = given.attempt_no
    AND a.state = 'RUNNING';

-- name: end_open_attempts(run_no bigint, state text, now bigint)
UPDATE sys.task_attempts a SET state = given.state, ended_at = given.now
FROM :rows
WHERE a.run_no = given.run_no AND a.state = 'RUNNING';

-- name: end_open_tasks(run_no bigint, now bigint, reason text)
UPDATE sys.task_runs t SET
    state = CASE WHEN t.attempts = 0 THEN 'SKIPPED' ELSE 'CANCELLED' END, completed_at = given.now, retry_at = NULL,
    cancelled_by = given.reason
FROM :rows
WHERE t.run_no = given.run_no AND t.state IN ('PENDING', 'RUNNING');

-- name: lock_late_runs
-- The deadline is the run's own affair; whoever starts it at this moment has its lock, and wins.
SELECT run_no, job_uuid FROM sys.job_runs
WHERE deadline_at < :now AND state IN ('PENDING', 'QUEUED') AND started_at IS NULL
ORDER BY deadline_at, run_no
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: due_windows
SELECT run_no, job_uuid, version FROM sys.job_runs
WHERE not_before <= :now AND waiting_for = 'window'
ORDER BY not_before, run_no
LIMIT :limit;

-- name: forget_expiry(run_no bigint)
UPDATE sys.job_runs r SET expires_at = NULL FROM :rows WHERE r.run_no = given.run_no;

-- name: runs_to_move
-- What a change of the job may reach: runs that wait for their chosen time, and those that wait for a retry,
-- or for the thread of the try before it.
SELECT run_no, scheduled_time, chosen_time, waiting_for FROM sys.job_runs
WHERE job_uuid = :job::uuid AND completed_at IS NULL
    AND ((waiting_for = 'window' AND origin = 'SCHEDULE' AND chosen_time > :now) OR waiting_for = 'retry'
        OR (waiting_for = 'previous_run' AND started_at IS NOT NULL))
ORDER BY run_no;

-- name: slots_ahead
SELECT scheduled_time FROM sys.job_runs
WHERE job_uuid = :job::uuid AND idempotency_key > :key AND idempotency_key < 'schedule;';

-- name: completed_after
SELECT version, scheduled_time, covers_from, covers_to FROM sys.job_runs
WHERE job_uuid = :job::uuid AND idempotency_key > :key AND idempotency_key < 'schedule;' AND state = 'COMPLETED'
ORDER BY idempotency_key
LIMIT :limit;

-- name: latest_in_window
-- Scheduled runs are found by their keys, which sort by time; all others by their own index.
SELECT DISTINCT ON (job_uuid) job_uuid, state
FROM (
    SELECT s.job_uuid, s.state, s.scheduled_time, s.run_no
    FROM unnest(:jobs::uuid[]) AS wanted (uuid)
    CROSS JOIN LATERAL (
        SELECT r.job_uuid, r.state, r.scheduled_time, r.run_no FROM sys.job_runs r
        WHERE r.job_uuid = wanted.uuid AND r.idempotency_key > :after_key AND r.idempotency_key <= :until_key
        ORDER BY r.idempotency_key DESC LIMIT 1
    ) s
    UNION ALL
    SELECT m.job_uuid, m.state, m.scheduled_time, m.run_no
    FROM sys.job_runs m
    WHERE m.job_uuid = ANY (:jobs::uuid[]) AND m.origin <> 'SCHEDULE'
        AND m.scheduled_time > :after AND m.scheduled_time <= :until
) found
ORDER BY job_uuid, scheduled_time DESC, run_no DESC;

-- name: previous_starts
-- The latest run of a job that had started, before a time, by its nominal time: of the scheduled ones, found by their
-- keys, and of all others. Of several asked for in one second it is the one that started last.
SELECT
    place - 1,
    (
        SELECT r.started_at FROM sys.job_runs r
        WHERE r.job_uuid = (given ->> 0)::uuid AND r.idempotency_key >= 'schedule:' AND r.idempotency_key <= given ->> 2
            AND r.started_at < (given ->> 3)::bigint AND r.run_no <> (given ->> 4)::bigint
        ORDER BY r.idempotency_key DESC LIMIT 1
    ),
    (
        SELECT max(r.started_at) FROM sys.job_runs r
        WHERE r.job_uuid = (given ->> 0)::uuid AND r.origin <> 'SCHEDULE'
            AND r.started_at < (given ->> 3)::bigint AND r.run_no <> (given ->> 4)::bigint
            AND r.scheduled_time = (
                SELECT m.scheduled_time FROM sys.job_runs m
                WHERE m.job_uuid = (given ->> 0)::uuid AND m.origin <> 'SCHEDULE'
                    AND m.scheduled_time <= (given ->> 1)::bigint
                    AND m.started_at < (given ->> 3)::bigint AND m.run_no <> (given ->> 4)::bigint
                ORDER BY m.scheduled_time DESC LIMIT 1
            )
    )
FROM jsonb_array_elements(:wanted::jsonb) WITH ORDINALITY AS wanted (given, place);

-- name: count_runs
SELECT
    count(*) FILTER (WHERE state = 'RUNNING'),
    count(*) FILTER (WHERE state = 'QUEUED'),
    count(*) FILTER (WHERE state = 'PENDING'),
    count(*) FILTER (
        WHERE not_before <= :now AND (waiting_for IS NULL OR waiting_for = 'retry')
            AND (deadline_at IS NULL OR deadline_at >= :now)
    )
FROM sys.job_runs
WHERE completed_at IS NULL;

-- name: lock_waiting_runs
SELECT run_no, job_uuid, version, scheduled_time FROM sys.job_runs
WHERE completed_at IS NULL AND waiting_for = 'dependencies'
ORDER BY run_no
FOR UPDATE SKIP LOCKED;

-- name: lock_waiting_runs_of
SELECT run_no, job_uuid, version, scheduled_time FROM sys.job_runs
WHERE job_uuid = :job::uuid AND completed_at IS NULL AND waiting_for = 'dependencies'
ORDER BY run_no
FOR UPDATE;

-- name: lock_dependent_runs
SELECT run_no, job_uuid, version, scheduled_time FROM sys.job_runs
WHERE completed_at IS NULL AND waiting_for = 'dependencies' AND job_uuid IN (
    SELECT job_uuid FROM sys.job_dependencies WHERE depends_on_job_uuid = ANY (:jobs::uuid[])
)
ORDER BY run_no
FOR UPDATE;

-- name: latest_ends
-- Of the job of a run, since it was last changed; the latest first.
SELECT r.job_uuid, a.state, a.error_code, coalesce(r.cancel_reason, r.reason)
FROM sys.job_runs own
JOIN sys.jobs j ON j.job_uuid = own.job_uuid
JOIN sys.job_runs r ON r.job_uuid = own.job_uuid
JOIN sys.task_attempts a ON a.run_no = r.run_no
WHERE own.run_no = :run AND a.ended_at IS NOT NULL AND a.started_at >= j.updated_at
ORDER BY a.ended_at DESC, r.run_no DESC, a.attempt_no DESC
LIMIT :limit;
