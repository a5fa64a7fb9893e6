-- Runs, their tasks and attempts: birth, claim, end.

-- name: look_around
SELECT
    (SELECT 1 FROM sys.nodes WHERE node_uuid = :node AND state = 'ALIVE'),
    EXISTS (SELECT 1 FROM sys.schedule_requests WHERE applied_at IS NULL),
    EXISTS (SELECT 1 FROM sys.job_runs INDEXED BY job_runs_deadline WHERE deadline_at < :now)
        OR EXISTS (
            SELECT 1 FROM sys.job_runs INDEXED BY job_runs_window WHERE not_before <= :now AND waiting_for = 'window'
        ),
    (SELECT max(is_limited) FROM sys.shares INDEXED BY shares_shared WHERE is_shared = 1);

-- name: next_wake
SELECT min(at) FROM (
    SELECT min(wake_at) AS at FROM sys.jobs INDEXED BY jobs_wake
    WHERE wake_at IS NOT NULL AND job_uuid NOT IN (SELECT value FROM json_each(:skip))
    UNION ALL
    SELECT min(not_before) FROM sys.job_runs INDEXED BY job_runs_window
    WHERE not_before IS NOT NULL AND waiting_for = 'window' AND run_no NOT IN (SELECT value FROM json_each(:left))
    UNION ALL
    -- Late is what has not started when its deadline is over.
    SELECT min(deadline_at) + 1 FROM sys.job_runs INDEXED BY job_runs_deadline WHERE deadline_at IS NOT NULL
);

-- name: reserve_run_numbers
UPDATE sys.counters SET value = value + :count WHERE counter_name = 'run'
RETURNING value - :count + 1, value;

-- name: active_runs
SELECT
    r.job_uuid, r.run_no, r.job_run_uuid, r.state, r.scheduled_time, r.chosen_time, r.waiting_for, r.is_recovery,
    CASE WHEN r.state <> 'RUNNING' AND r.started_at IS NOT NULL
        THEN EXISTS (SELECT 1 FROM sys.task_runs t WHERE t.run_no = r.run_no AND t.retry_at IS NOT NULL) ELSE 0 END,
    CASE WHEN r.waiting_for = 'previous_run' THEN (
        SELECT coalesce(n.node_name, h.node_uuid)
        FROM sys.run_threads h LEFT JOIN sys.nodes n ON n.node_uuid = h.node_uuid WHERE h.run_no = r.run_no
    ) END
FROM json_each(:jobs) j
CROSS JOIN sys.job_runs r INDEXED BY job_runs_active ON r.job_uuid = j.value
WHERE r.completed_at IS NULL
UNION ALL
-- Runs that have ended, but for their threads: there are few of those at any time.
SELECT
    r.job_uuid, r.run_no, r.job_run_uuid, r.state, r.scheduled_time, r.chosen_time, r.waiting_for, r.is_recovery, 0,
    coalesce(n.node_name, run_threads.node_uuid)
FROM sys.run_threads
CROSS JOIN sys.job_runs r ON r.run_no = run_threads.run_no
LEFT JOIN sys.nodes n ON n.node_uuid = run_threads.node_uuid
WHERE run_threads.job_uuid IN (SELECT value FROM json_each(:jobs)) AND r.completed_at IS NOT NULL
ORDER BY 2;

-- name: jobs_not_alone
-- Jobs that have another run under way, that others depend on, or that fire once: only those have anything to hand over.
SELECT j.value FROM json_each(:jobs) j
WHERE EXISTS (
    SELECT 1 FROM sys.job_runs r INDEXED BY job_runs_active WHERE r.job_uuid = j.value AND r.completed_at IS NULL
) OR EXISTS (
    SELECT 1 FROM sys.job_dependencies d WHERE d.depends_on_job_uuid = j.value
) OR EXISTS (
    SELECT 1 FROM sys.jobs o INDEXED BY jobs_once WHERE o.job_uuid = j.value AND o.schedule_kind = 'AT'
);

-- name: lock_runs
SELECT
    run_no, job_run_uuid, job_uuid, version, state, assigned_node_uuid, fence, scheduled_time, chosen_time, started_at,
    resumed_at, spent_ms, cancel_requested_at, cancel_reason, waiting_for, origin, is_recovery, covers_from, covers_to,
    only_tasks, pool_name, payload
FROM json_each(:runs) j
CROSS JOIN sys.job_runs r ON r.run_no = j.value
ORDER BY run_no;

-- name: run_standing
SELECT job_run_uuid, state, assigned_node_uuid, fence FROM sys.job_runs WHERE run_no = :run;

-- name: ended_runs
SELECT
    r.job_uuid, r.version, r.state, r.covers_count, r.reason, r.is_recovery, r.job_run_uuid, r.scheduled_time,
    r.started_at, r.covers_to
FROM json_each(:runs) j
CROSS JOIN sys.job_runs r ON r.run_no = j.value
WHERE r.completed_at IS NOT NULL;

-- name: find_runs
SELECT run_no, job_run_uuid FROM sys.job_runs WHERE job_run_uuid IN (SELECT value FROM json_each(:runs));

-- name: run_by_key
SELECT job_run_uuid, state FROM sys.job_runs WHERE job_uuid = :job AND idempotency_key = :key;

-- name: insert_runs(run_no, job_run_uuid, job_uuid, node, scheduled_time, started_at, completed_at, state, idempotency_key, version, origin, chosen_time, not_before, waiting_for, deadline_at, fence, resumed_at, expires_at, reason, is_recovery, covers_from, covers_to, covers_count, replay_of, only_tasks, pool_name, limited, requires, payload, requested_by, created_at)
INSERT INTO sys.job_runs (
    run_no, job_run_uuid, job_uuid, assigned_node_uuid, scheduled_time, started_at, completed_at, state,
    idempotency_key, version, origin, chosen_time, not_before, waiting_for, deadline_at, fence, resumed_at, expires_at,
    reason, is_recovery, covers_from, covers_to, covers_count, replay_of, only_tasks, pool_name, limited, requires,
    payload, requested_by, created_at, share
) VALUES (
    :run_no, :job_run_uuid, :job_uuid, :node, :scheduled_time, :started_at, :completed_at, :state,
    :idempotency_key, :version, :origin, :chosen_time, :not_before, :waiting_for, :deadline_at, :fence, :resumed_at,
    :expires_at, :reason, :is_recovery, :covers_from, :covers_to, :covers_count, :replay_of, :only_tasks, :pool_name,
    :limited, :requires, :payload, :requested_by, :created_at,
    -- Where nobody shares, one look at an empty index.
    CASE WHEN EXISTS (SELECT 1 FROM sys.shares INDEXED BY shares_shared WHERE is_shared = 1) THEN (
        SELECT s.user_uuid FROM sys.jobs j JOIN sys.shares s ON s.user_uuid = j.created_by_user_uuid
        WHERE j.job_uuid = :job_uuid AND s.is_shared = 1 AND s.user_uuid <> 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6'
    ) END
);

-- name: insert_started_runs(run_no, job_run_uuid, job_uuid, node, scheduled_time, now, idempotency_key, version, expires_at)
-- The plain case of insert_runs: born RUNNING, everything else at its default.
INSERT INTO sys.job_runs (
    run_no, job_run_uuid, job_uuid, assigned_node_uuid, scheduled_time, started_at, state, idempotency_key, version,
    chosen_time, fence, resumed_at, expires_at, created_at
) VALUES (
    :run_no, :job_run_uuid, :job_uuid, :node, :scheduled_time, :now, 'RUNNING', :idempotency_key, :version,
    :scheduled_time, 1, :now, :expires_at, :now
);

-- name: insert_windows(run_no, period_key, window_start, window_end, chosen_time, seed_hash, distribution, attempts, reason, core_version, tzdata_version)
INSERT INTO sys.run_windows (
    run_no, period_key, window_start, window_end, chosen_time, seed_hash, distribution, attempts, reason, core_version,
    tzdata_version
) VALUES (
    :run_no, :period_key, :window_start, :window_end, :chosen_time, :seed_hash, :distribution, :attempts, :reason,
    :core_version, :tzdata_version
);

-- name: insert_task_runs(run_no, position, task_name, state, attempts, started_at)
INSERT INTO sys.task_runs (run_no, position, task_name, state, attempts, started_at)
VALUES (:run_no, :position, :task_name, :state, :attempts, :started_at);

-- name: insert_attempts(run_no, position, attempt_no, node, fence, started_at)
INSERT INTO sys.task_attempts (run_no, position, attempt_no, state, node_uuid, fence, started_at)
VALUES (:run_no, :position, :attempt_no, 'RUNNING', :node, :fence, :started_at);

-- name: before_dispatch
SELECT
    (SELECT 1 FROM sys.nodes WHERE node_uuid = :node AND state = 'ALIVE'),
    EXISTS (
        SELECT 1 FROM sys.job_runs INDEXED BY job_runs_limited
        WHERE not_before <= :now AND limited = 1 AND (waiting_for IS NULL OR waiting_for = 'retry')
    ),
    (
        SELECT min(not_before) FROM sys.job_runs INDEXED BY job_runs_claim
        WHERE not_before > :now AND (waiting_for IS NULL OR waiting_for = 'retry')
    ),
    EXISTS (
        SELECT 1 FROM sys.job_runs INDEXED BY job_runs_share
        WHERE share IS NOT NULL AND not_before <= :now AND (waiting_for IS NULL OR waiting_for = 'retry')
    );

-- name: claimable_runs
SELECT
    run_no, job_run_uuid, job_uuid, version, state, assigned_node_uuid, fence, scheduled_time, chosen_time, started_at,
    resumed_at, spent_ms, cancel_requested_at, cancel_reason, waiting_for, origin, is_recovery, covers_from, covers_to,
    only_tasks, pool_name, payload
FROM sys.job_runs INDEXED BY job_runs_claim
WHERE not_before <= :now AND (waiting_for IS NULL OR waiting_for = 'retry')
    AND (deadline_at IS NULL OR deadline_at >= :now)
    AND (:handlers IS NULL OR requires IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(requires) n WHERE n.value NOT IN (SELECT value FROM json_each(:handlers))
    ))
    AND (:faulty IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(:faulty) f WHERE f.value ->> 0 = job_uuid AND f.value ->> 1 = version
    ))
ORDER BY not_before, run_no
LIMIT :limit;

-- name: claimable_candidates
-- Without pools that are known to be full, and versions of jobs that are full or cannot be read here.
SELECT
    run_no, job_run_uuid, job_uuid, version, state, assigned_node_uuid, fence, scheduled_time, chosen_time, started_at,
    resumed_at, spent_ms, cancel_requested_at, cancel_reason, waiting_for, origin, is_recovery, covers_from, covers_to,
    only_tasks, pool_name, payload, not_before
FROM sys.job_runs INDEXED BY job_runs_claim
WHERE not_before <= :now AND (waiting_for IS NULL OR waiting_for = 'retry')
    AND (deadline_at IS NULL OR deadline_at >= :now)
    AND (:handlers IS NULL OR requires IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(requires) n WHERE n.value NOT IN (SELECT value FROM json_each(:handlers))
    ))
    AND (pool_name IS NULL OR pool_name NOT IN (SELECT value FROM json_each(:full_pools)))
    AND (job_uuid, version) NOT IN (SELECT value ->> 0, value ->> 1 FROM json_each(:passed_over))
    AND (not_before, run_no) > (:after, :last)
ORDER BY not_before, run_no
LIMIT :limit;

-- name: lock_pools
SELECT pool_name, max_running, 1 FROM sys.pools ORDER BY pool_name;

-- name: lock_limited_jobs
-- PostgreSQL locks rows here, and answers those that were to be had.
SELECT DISTINCT job_uuid FROM sys.job_runs WHERE not_before <= :now AND limited;

-- name: running_in_pools
-- A run whose thread still works keeps its place, though it has ended or is to be tried again.
SELECT pool_name, count(*) FROM (
    SELECT pool_name, run_no FROM sys.job_runs INDEXED BY job_runs_active
    WHERE completed_at IS NULL AND state = 'RUNNING' AND pool_name IS NOT NULL
    UNION
    SELECT r.pool_name, r.run_no FROM sys.run_threads h CROSS JOIN sys.job_runs r ON r.run_no = h.run_no
    WHERE r.pool_name IS NOT NULL
)
GROUP BY pool_name;

-- name: running_in_jobs
-- A run whose thread still works counts, though it has ended or is to be tried again.
SELECT job_uuid, count(*) FROM (
    SELECT r.job_uuid, r.run_no
    FROM json_each(:jobs) j
    CROSS JOIN sys.job_runs r INDEXED BY job_runs_active ON r.job_uuid = j.value
    WHERE r.completed_at IS NULL AND r.state = 'RUNNING'
    UNION
    SELECT job_uuid, run_no FROM sys.run_threads WHERE job_uuid IN (SELECT value FROM json_each(:jobs))
)
GROUP BY job_uuid;

-- name: start_runs(run_no, node, now, expires_at, retries)
UPDATE sys.job_runs SET
    state = 'RUNNING', assigned_node_uuid = :node, fence = fence + 1, started_at = coalesce(started_at, :now),
    resumed_at = :now, expires_at = :expires_at, not_before = NULL, waiting_for = NULL, deadline_at = NULL,
    retry_count = retry_count + :retries
WHERE run_no = :run_no AND state = 'PENDING';

-- name: finish_runs(run_no, state, now, reason, result_message, rows_affected, error_code, data)
UPDATE sys.job_runs SET
    state = :state, completed_at = :now, result_message = :result_message,
    -- A release before the column writes a replay's reason into `reason`.
    replay_reason = CASE WHEN origin = 'REPLAY' THEN coalesce(replay_reason, reason) END, reason = :reason,
    rows_affected = :rows_affected, error_code = :error_code, result_data = CAST(:data AS BLOB),
    spent_ms = spent_ms + :now - resumed_at
WHERE run_no = :run_no AND state = 'RUNNING';

-- name: finish_plain_runs(run_no, node, fence, now, rows_affected)
-- The plain case of finish_runs, which compares owner and fence itself instead of reading them first.
UPDATE sys.job_runs SET
    state = 'COMPLETED', completed_at = :now, reason = NULL, rows_affected = :rows_affected,
    replay_reason = CASE WHEN origin = 'REPLAY' THEN coalesce(replay_reason, reason) END,
    spent_ms = spent_ms + :now - resumed_at
WHERE run_no = :run_no AND fence = :fence AND assigned_node_uuid = :node AND state = 'RUNNING';

-- name: finish_plain_tasks(run_no, attempt_no, now, result)
UPDATE sys.task_runs SET state = 'SUCCESS', completed_at = :now, result = :result
WHERE run_no = :run_no AND position = 0 AND attempts = :attempt_no AND state = 'RUNNING';

-- name: finish_plain_attempts(run_no, attempt_no, now)
UPDATE sys.task_attempts SET state = 'SUCCESS', ended_at = :now
WHERE run_no = :run_no AND position = 0 AND attempt_no = :attempt_no AND state = 'RUNNING';

-- name: end_runs(run_no, state, now, reason, by, fence_up)
UPDATE sys.job_runs SET
    state = :state, completed_at = :now, reason = :reason, not_before = NULL, waiting_for = NULL, deadline_at = NULL,
    cancelled_by = coalesce(:by, cancelled_by), fence = fence + :fence_up
WHERE run_no = :run_no AND completed_at IS NULL;

-- name: park_runs(run_no, not_before, waiting_for, now, requires, unread)
-- A node that cannot read the run's definition leaves what it requires as it is.
UPDATE sys.job_runs SET
    state = 'PENDING', not_before = :not_before, waiting_for = :waiting_for, assigned_node_uuid = NULL,
    spent_ms = spent_ms + :now - resumed_at, resumed_at = NULL, expires_at = NULL,
    requires = CASE WHEN :unread THEN coalesce(requires, :requires) ELSE :requires END,
    cancel_requested_at = NULL, cancel_reason = NULL, cancelled_by = NULL
WHERE run_no = :run_no AND state = 'RUNNING';

-- name: ready_runs(run_no, not_before)
UPDATE sys.job_runs SET state = 'PENDING', not_before = :not_before, waiting_for = NULL
WHERE run_no = :run_no AND (state = 'PENDING' OR state = 'QUEUED');

-- name: queue_runs(run_no)
UPDATE sys.job_runs SET state = 'QUEUED', not_before = NULL, waiting_for = NULL WHERE run_no = :run_no AND state = 'PENDING';

-- name: recover_runs(run_no)
UPDATE sys.job_runs SET is_recovery = 1 WHERE run_no = :run_no AND state = 'PENDING';

-- name: wait_runs(run_no, waiting_for)
UPDATE sys.job_runs SET state = 'PENDING', not_before = NULL, waiting_for = :waiting_for
WHERE run_no = :run_no AND (state = 'PENDING' OR state = 'QUEUED');

-- name: delete_runs(run_no)
DELETE FROM sys.job_runs WHERE run_no = :run_no;

-- name: note_replays(run_no, reason)
UPDATE sys.job_runs SET replay_reason = :reason WHERE run_no = :run_no;

-- name: request_cancels(run_no, now, reason, by)
UPDATE sys.job_runs SET cancel_requested_at = :now, cancel_reason = :reason, cancelled_by = :by
WHERE run_no = :run_no AND state = 'RUNNING' AND cancel_requested_at IS NULL;

-- name: count_retries(run_no, retries)
UPDATE sys.job_runs SET retry_count = retry_count + :retries WHERE run_no = :run_no;

-- name: read_task_runs
SELECT run_no, position, task_name, state, attempts, failures, lost, retry_at, reason, cancelled_by
FROM json_each(:runs) j
CROSS JOIN sys.task_runs t ON t.run_no = j.value
ORDER BY run_no, position;

-- name: update_task_runs(run_no, position, state, attempts, failures, lost, retry_at, started_at, completed_at, result, reason, cancelled_by)
UPDATE sys.task_runs SET
    state = :state, attempts = :attempts, failures = :failures, lost = :lost, retry_at = :retry_at,
    started_at = coalesce(started_at, :started_at), completed_at = :completed_at, result = coalesce(:result, result),
    reason = :reason, cancelled_by = :cancelled_by
WHERE run_no = :run_no AND position = :position;

-- name: end_attempts(run_no, position, attempt_no, state, ended_at, error_code, error_message, traceback)
UPDATE sys.task_attempts SET
    state = :state, ended_at = :ended_at, error_code = :error_code, error_message = :error_message,
    traceback = :traceback
WHERE run_no = :run_no AND position = :position AND attempt_no = :attempt_no AND state = 'RUNNING';

-- name: end_open_attempts(run_no, state, now)
UPDATE sys.task_attempts SET state = :state, ended_at = :now WHERE run_no = :run_no AND state = 'RUNNING';

-- name: end_open_tasks(run_no, now, reason)
UPDATE sys.task_runs SET
    state = CASE WHEN attempts = 0 THEN 'SKIPPED' ELSE 'CANCELLED' END, completed_at = :now, retry_at = NULL,
    cancelled_by = :reason
WHERE run_no = :run_no AND (state = 'PENDING' OR state = 'RUNNING');

-- name: lock_late_runs
SELECT run_no, job_uuid FROM sys.job_runs INDEXED BY job_runs_deadline
WHERE deadline_at < :now AND (state = 'PENDING' OR state = 'QUEUED') AND started_at IS NULL
ORDER BY deadline_at, run_no
LIMIT :limit;

-- name: due_windows
SELECT run_no, job_uuid, version FROM sys.job_runs INDEXED BY job_runs_window
WHERE not_before <= :now AND waiting_for = 'window'
ORDER BY not_before, run_no
LIMIT :limit;

-- name: forget_expiry(run_no)
UPDATE sys.job_runs SET expires_at = NULL WHERE run_no = :run_no;

-- name: runs_to_move
-- What a change of the job may reach: runs that wait for their chosen time, and those that wait for a retry,
-- or for the thread of the try before it.
SELECT run_no, scheduled_time, chosen_time, waiting_for FROM sys.job_runs INDEXED BY job_runs_active
WHERE job_uuid = :job AND completed_at IS NULL
    AND ((waiting_for = 'window' AND origin = 'SCHEDULE' AND chosen_time > :now) OR waiting_for = 'retry'
        OR (waiting_for = 'previous_run' AND started_at IS NOT NULL))
ORDER BY run_no;

-- name: slots_ahead
SELECT scheduled_time FROM sys.job_runs
WHERE job_uuid = :job AND idempotency_key > :key AND idempotency_key < 'schedule;';

-- name: completed_after
SELECT version, scheduled_time, covers_from, covers_to FROM sys.job_runs
WHERE job_uuid = :job AND idempotency_key > :key AND idempotency_key < 'schedule;' AND state = 'COMPLETED'
ORDER BY idempotency_key
LIMIT :limit;

-- name: latest_in_window
-- Scheduled runs are found by their keys, which sort by time; all others by their own index.
SELECT job_uuid, state FROM (
    SELECT job_uuid, state, row_number() OVER (PARTITION BY job_uuid ORDER BY scheduled_time DESC, run_no DESC) AS place
    FROM (
        SELECT r.job_uuid, r.state, r.scheduled_time, r.run_no
        FROM json_each(:jobs) j
        CROSS JOIN sys.job_runs r ON r.run_no = (
            SELECT s.run_no FROM sys.job_runs s
            WHERE s.job_uuid = j.value AND s.idempotency_key > :after_key AND s.idempotency_key <= :until_key
            ORDER BY s.idempotency_key DESC LIMIT 1
        )
        UNION ALL
        SELECT m.job_uuid, m.state, m.scheduled_time, m.run_no
        FROM json_each(:jobs) j
        CROSS JOIN sys.job_runs m INDEXED BY job_runs_manual ON m.job_uuid = j.value
        WHERE m.origin <> 'SCHEDULE' AND m.scheduled_time > :after AND m.scheduled_time <= :until
    )
) WHERE place = 1;

-- name: previous_starts
-- The latest run of a job that had started, before a time, by its nominal time: of the scheduled ones, found by their
-- keys, and of all others. Of several asked for in one second it is the one that started last.
SELECT
    w.key,
    (
        SELECT r.started_at FROM sys.job_runs r
        WHERE r.job_uuid = json_extract(w.value, '$[0]') AND r.idempotency_key >= 'schedule:'
            AND r.idempotency_key <= json_extract(w.value, '$[2]')
            AND r.started_at < json_extract(w.value, '$[3]') AND r.run_no <> json_extract(w.value, '$[4]')
        ORDER BY r.idempotency_key DESC LIMIT 1
    ),
    (
        SELECT max(r.started_at) FROM sys.job_runs r INDEXED BY job_runs_manual
        WHERE r.job_uuid = json_extract(w.value, '$[0]') AND r.origin <> 'SCHEDULE'
            AND r.started_at < json_extract(w.value, '$[3]') AND r.run_no <> json_extract(w.value, '$[4]')
            AND r.scheduled_time = (
                SELECT m.scheduled_time FROM sys.job_runs m INDEXED BY job_runs_manual
                WHERE m.job_uuid = json_extract(w.value, '$[0]') AND m.origin <> 'SCHEDULE'
                    AND m.scheduled_time <= json_extract(w.value, '$[1]')
                    AND m.started_at < json_extract(w.value, '$[3]') AND m.run_no <> json_extract(w.value, '$[4]')
                ORDER BY m.scheduled_time DESC LIMIT 1
            )
    )
FROM json_each(:wanted) w;

-- name: count_runs
SELECT
    count(*) FILTER (WHERE state = 'RUNNING'),
    count(*) FILTER (WHERE state = 'QUEUED'),
    count(*) FILTER (WHERE state = 'PENDING'),
    count(*) FILTER (
        WHERE not_before <= :now AND (waiting_for IS NULL OR waiting_for = 'retry')
            AND (deadline_at IS NULL OR deadline_at >= :now)
    )
FROM sys.job_runs INDEXED BY job_runs_active
WHERE completed_at IS NULL;

-- name: lock_waiting_runs
SELECT run_no, job_uuid, version, scheduled_time FROM sys.job_runs INDEXED BY job_runs_active
WHERE completed_at IS NULL AND waiting_for = 'dependencies'
ORDER BY run_no;

-- name: lock_waiting_runs_of
SELECT run_no, job_uuid, version, scheduled_time FROM sys.job_runs INDEXED BY job_runs_active
WHERE job_uuid = :job AND completed_at IS NULL AND waiting_for = 'dependencies'
ORDER BY run_no;

-- name: lock_dependent_runs
SELECT r.run_no, r.job_uuid, r.version, r.scheduled_time
FROM json_each(:jobs) j
CROSS JOIN sys.job_dependencies d INDEXED BY job_dependencies_on ON d.depends_on_job_uuid = j.value
CROSS JOIN sys.job_runs r INDEXED BY job_runs_active ON r.job_uuid = d.job_uuid
WHERE r.completed_at IS NULL AND r.waiting_for = 'dependencies'
ORDER BY r.run_no;

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
