-- What pages and lists look at. Nothing here writes, and all of it may run beside the engine: see looking.py.
-- `folded` is a function of our own, for SQLite knows small letters and capitals of ASCII only. Where that will do, its
-- own is much faster.

-- name: seen_jobs
SELECT job_uuid FROM sys.jobs
WHERE created_by_user_uuid = :viewer OR job_uuid IN (SELECT value FROM json_each(:granted));

-- name: count_all_jobs
SELECT count(*) FROM sys.jobs;

-- name: count_found_jobs
SELECT count(*) FROM sys.jobs j
WHERE (:state IS NULL OR j.state = :state)
    AND (:namespace IS NULL OR j.namespace = :namespace)
    AND (:owner IS NULL OR j.created_by_user_uuid = :owner)
    AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(j.tags) t WHERE t.value = :tag))
    AND (:viewer IS NULL OR j.created_by_user_uuid = :viewer OR j.job_uuid IN (SELECT value FROM json_each(:granted)))
    AND (:search IS NULL OR instr(iif(:plain, lower(j.job_name), folded(j.job_name)), :search)
        OR instr(iif(:plain, lower(j.description), folded(j.description)), :search)
        OR EXISTS (SELECT 1 FROM json_each(j.tags) t WHERE instr(iif(:plain, lower(t.value), folded(t.value)), :search)));

-- name: jobs_by_name
SELECT j.job_uuid FROM sys.jobs j
WHERE (:state IS NULL OR j.state = :state)
    AND (:namespace IS NULL OR j.namespace = :namespace)
    AND (:owner IS NULL OR j.created_by_user_uuid = :owner)
    AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(j.tags) t WHERE t.value = :tag))
    AND (:viewer IS NULL OR j.created_by_user_uuid = :viewer OR j.job_uuid IN (SELECT value FROM json_each(:granted)))
    AND (:search IS NULL OR instr(iif(:plain, lower(j.job_name), folded(j.job_name)), :search)
        OR instr(iif(:plain, lower(j.description), folded(j.description)), :search)
        OR EXISTS (SELECT 1 FROM json_each(j.tags) t WHERE instr(iif(:plain, lower(t.value), folded(t.value)), :search)))
ORDER BY j.job_name
LIMIT :limit OFFSET :offset;

-- name: jobs_by_name_down
SELECT j.job_uuid FROM sys.jobs j
WHERE (:state IS NULL OR j.state = :state)
    AND (:namespace IS NULL OR j.namespace = :namespace)
    AND (:owner IS NULL OR j.created_by_user_uuid = :owner)
    AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(j.tags) t WHERE t.value = :tag))
    AND (:viewer IS NULL OR j.created_by_user_uuid = :viewer OR j.job_uuid IN (SELECT value FROM json_each(:granted)))
    AND (:search IS NULL OR instr(iif(:plain, lower(j.job_name), folded(j.job_name)), :search)
        OR instr(iif(:plain, lower(j.description), folded(j.description)), :search)
        OR EXISTS (SELECT 1 FROM json_each(j.tags) t WHERE instr(iif(:plain, lower(t.value), folded(t.value)), :search)))
ORDER BY j.job_name DESC
LIMIT :limit OFFSET :offset;

-- name: jobs_by_column
-- Sorting by anything but names reads all that were found: a list of jobs is sorted whole, or not at all.
SELECT job_uuid FROM (
    SELECT
        j.job_uuid, j.job_name,
        CASE :sort WHEN 'state' THEN j.state WHEN 'owner' THEN u.user_name END AS word,
        CASE :sort
            WHEN 'next_run_time' THEN j.next_run_time
            WHEN 'updated_at' THEN j.updated_at
            -- The latest by nominal time that does not wait: a scheduled one by its key, any other by its own index.
            WHEN 'last_run' THEN nullif(max(
                coalesce((
                    SELECT r.scheduled_time FROM sys.job_runs r
                    WHERE r.job_uuid = j.job_uuid AND r.idempotency_key >= 'schedule:' AND r.idempotency_key < 'schedule;'
                        AND r.state <> 'PENDING' AND r.state <> 'QUEUED'
                    ORDER BY r.idempotency_key DESC LIMIT 1
                ), -1),
                coalesce((
                    SELECT m.scheduled_time FROM sys.job_runs m INDEXED BY job_runs_manual
                    WHERE m.job_uuid = j.job_uuid AND m.origin <> 'SCHEDULE'
                        AND m.state <> 'PENDING' AND m.state <> 'QUEUED'
                    ORDER BY m.scheduled_time DESC LIMIT 1
                ), -1)
            ), -1)
        END AS at
    FROM sys.jobs j
    LEFT JOIN sys.users u ON u.user_uuid = j.created_by_user_uuid
    WHERE (:state IS NULL OR j.state = :state)
        AND (:namespace IS NULL OR j.namespace = :namespace)
        AND (:owner IS NULL OR j.created_by_user_uuid = :owner)
        AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(j.tags) t WHERE t.value = :tag))
        AND (:viewer IS NULL OR j.created_by_user_uuid = :viewer
            OR j.job_uuid IN (SELECT value FROM json_each(:granted)))
        AND (:search IS NULL OR instr(iif(:plain, lower(j.job_name), folded(j.job_name)), :search)
            OR instr(iif(:plain, lower(j.description), folded(j.description)), :search)
            OR EXISTS (
                SELECT 1 FROM json_each(j.tags) t WHERE instr(iif(:plain, lower(t.value), folded(t.value)), :search)
            ))
)
ORDER BY
    at IS NULL, CASE WHEN :descending THEN -at ELSE at END,
    CASE WHEN NOT :descending THEN word END, CASE WHEN :descending THEN word END DESC,
    job_name
LIMIT :limit OFFSET :offset;

-- name: read_jobs
SELECT
    j.job_uuid, j.job_name, j.version, j.state, j.planned_until, j.wake_at, j.first_seen, j.paused_until, j.moved_slot,
    j.moved_to, j.covered_until, j.next_run_time, j.last_enqueued_at, j.pause_note, j.namespace, j.created_at,
    j.updated_at, j.registered, coalesce(v.author, 'local'), u.user_name
FROM json_each(:jobs) w
CROSS JOIN sys.jobs j ON j.job_uuid = w.value
LEFT JOIN sys.users u ON u.user_uuid = j.created_by_user_uuid
LEFT JOIN sys.job_versions v ON v.job_uuid = j.job_uuid
    AND v.version = (
        SELECT min(w.version) FROM sys.job_versions w WHERE w.job_uuid = j.job_uuid AND w.created_at >= j.created_at
    )
ORDER BY w.key;

-- name: latest_runs
-- Of each job, as many as asked for by nominal time: scheduled ones by their keys, all others by their own index.
SELECT
    r.job_uuid, r.run_no, r.job_run_uuid, r.state, r.scheduled_time, r.chosen_time, r.started_at, r.completed_at
FROM json_each(:jobs) j
CROSS JOIN sys.job_runs r ON r.run_no IN (
    SELECT s.run_no FROM sys.job_runs s
    WHERE s.job_uuid = j.value AND s.idempotency_key >= :since_key AND s.idempotency_key < :until_key
        AND s.run_no < :before AND s.state IN (SELECT value FROM json_each(:states))
        AND (:origin IS NULL OR s.origin = :origin)
        AND (:since IS NULL OR s.scheduled_time >= :since)
        AND (:until IS NULL OR s.scheduled_time < :until)
    ORDER BY s.idempotency_key DESC LIMIT :most
)
UNION ALL
SELECT
    r.job_uuid, r.run_no, r.job_run_uuid, r.state, r.scheduled_time, r.chosen_time, r.started_at, r.completed_at
FROM json_each(:jobs) j
CROSS JOIN sys.job_runs r ON r.run_no IN (
    SELECT m.run_no FROM sys.job_runs m INDEXED BY job_runs_manual
    WHERE m.job_uuid = j.value AND m.origin <> 'SCHEDULE'
        AND m.run_no < :before AND m.state IN (SELECT value FROM json_each(:states))
        AND (:origin IS NULL OR m.origin = :origin)
        AND m.scheduled_time >= coalesce(:since, -1)
        AND (:until IS NULL OR m.scheduled_time < :until)
    ORDER BY m.scheduled_time DESC, m.run_no DESC LIMIT :most
);

-- name: read_schedules
-- As `cb_schedules` has it.
SELECT
    j.job_name, j.job_no, CASE WHEN j.job_type = 'TASKS' THEN 'flow' ELSE 'task' END, j.schedule_text,
    nullif(max(
        coalesce((
            SELECT r.started_at FROM sys.job_runs r
            WHERE r.job_uuid = j.job_uuid AND r.idempotency_key >= 'schedule:' AND r.idempotency_key < 'schedule;'
                AND r.started_at IS NOT NULL
            ORDER BY r.idempotency_key DESC LIMIT 1
        ), 0),
        coalesce((
            SELECT max(m.started_at) FROM sys.job_runs m INDEXED BY job_runs_manual
            WHERE m.job_uuid = j.job_uuid AND m.origin <> 'SCHEDULE'
        ), 0)
    ), 0)
FROM json_each(:jobs) w
CROSS JOIN sys.jobs j ON j.job_uuid = w.value;

-- name: half_deleted_jobs
-- Jobs of which versions or open runs are left, and neither a row nor a tombstone: somebody deleted rows by hand.
SELECT
    l.job_uuid,
    (SELECT v.definition FROM sys.job_versions v WHERE v.job_uuid = l.job_uuid ORDER BY v.version DESC LIMIT 1),
    (SELECT count(*) FROM sys.job_runs r WHERE r.job_uuid = l.job_uuid),
    (SELECT count(*) FROM sys.job_runs r WHERE r.job_uuid = l.job_uuid AND r.completed_at IS NULL)
FROM (
    SELECT job_uuid FROM sys.job_versions
    UNION
    SELECT job_uuid FROM sys.job_runs WHERE completed_at IS NULL
) l
WHERE NOT EXISTS (SELECT 1 FROM sys.jobs j WHERE j.job_uuid = l.job_uuid)
    AND NOT EXISTS (SELECT 1 FROM sys.job_tombstones t WHERE t.job_uuid = l.job_uuid)
ORDER BY l.job_uuid
LIMIT :limit;

-- name: refused_requests
SELECT job_name, field, error, applied_at, requested_by
FROM sys.schedule_requests
WHERE error IS NOT NULL AND applied_at >= :since
ORDER BY request_no DESC
LIMIT :limit;

-- name: list_dependents
SELECT j.job_uuid FROM sys.job_dependencies d
CROSS JOIN sys.jobs j ON j.job_uuid = d.job_uuid
WHERE d.depends_on_job_uuid = :job
ORDER BY j.job_name
LIMIT :limit;

-- name: strips
-- Of each job, as many as asked for of those that have begun, by nominal time: scheduled ones, and all others. As JSON:
-- a thousand small rows take longer to hand over than to find.
SELECT
    j.value,
    (
        SELECT json_group_array(json_array(run_no, job_run_uuid, state, scheduled_time, started_at, completed_at))
        FROM (
            SELECT * FROM sys.job_runs s
            WHERE s.job_uuid = j.value AND s.idempotency_key >= 'schedule:' AND s.idempotency_key < 'schedule;'
                AND s.state <> 'PENDING' AND s.state <> 'QUEUED'
            ORDER BY s.idempotency_key DESC LIMIT :most
        )
    ),
    (
        SELECT json_group_array(json_array(run_no, job_run_uuid, state, scheduled_time, started_at, completed_at))
        FROM (
            SELECT * FROM sys.job_runs m INDEXED BY job_runs_manual
            WHERE m.job_uuid = j.value AND m.origin <> 'SCHEDULE'
                AND m.state <> 'PENDING' AND m.state <> 'QUEUED'
            ORDER BY m.scheduled_time DESC, m.run_no DESC LIMIT :most
        )
    )
FROM json_each(:jobs) j;

-- name: newest_run
SELECT coalesce(max(run_no), 0) FROM sys.job_runs;

-- name: mark_of_runs
-- One row where another node lives, else none.
SELECT
    (SELECT coalesce(max(run_no), 0) FROM sys.job_runs),
    count(*), count(*) FILTER (WHERE state = 'RUNNING'), coalesce(sum(fence), 0)
FROM sys.job_runs INDEXED BY job_runs_active
WHERE completed_at IS NULL
HAVING EXISTS (SELECT 1 FROM sys.nodes WHERE state = 'ALIVE' AND node_uuid <> :node);

-- name: page_of_runs
SELECT r.run_no FROM sys.job_runs r
WHERE r.run_no < :before AND r.run_no >= :first
    AND (:jobs IS NULL OR r.job_uuid IN (SELECT value FROM json_each(:jobs)))
    AND (:states IS NULL OR r.state IN (SELECT value FROM json_each(:states)))
    AND (:origin IS NULL OR r.origin = :origin)
    AND (:since IS NULL OR r.scheduled_time >= :since)
    AND (:until IS NULL OR r.scheduled_time < :until)
ORDER BY r.run_no DESC
LIMIT :limit;

-- name: page_of_runs_between
-- By the index of ids: + keeps SQLite from walking all runs in the order of their numbers.
SELECT r.run_no FROM sys.job_runs r
WHERE r.job_run_uuid BETWEEN :lowest AND :highest AND +r.run_no < :before AND +r.run_no >= :first
    AND (:jobs IS NULL OR +r.job_uuid IN (SELECT value FROM json_each(:jobs)))
    AND (:states IS NULL OR r.state IN (SELECT value FROM json_each(:states)))
    AND (:origin IS NULL OR r.origin = :origin)
    AND (:since IS NULL OR r.scheduled_time >= :since)
    AND (:until IS NULL OR r.scheduled_time < :until)
ORDER BY +r.run_no DESC
LIMIT :limit;

-- name: page_of_active_runs
SELECT r.run_no FROM sys.job_runs r INDEXED BY job_runs_active
WHERE r.completed_at IS NULL AND r.run_no < :before AND r.run_no >= :first
    AND (:jobs IS NULL OR r.job_uuid IN (SELECT value FROM json_each(:jobs)))
    AND (:states IS NULL OR r.state IN (SELECT value FROM json_each(:states)))
    AND (:origin IS NULL OR r.origin = :origin)
    AND (:since IS NULL OR r.scheduled_time >= :since)
    AND (:until IS NULL OR r.scheduled_time < :until)
ORDER BY r.run_no DESC
LIMIT :limit;

-- name: page_of_failed_runs
SELECT r.run_no FROM sys.job_runs r INDEXED BY job_runs_failed
WHERE (r.state = 'FAILED' OR r.state = 'FAILED_STALE' OR (r.state = 'CANCELLED' AND r.reason = 'timeout'))
    AND r.run_no < :before AND r.run_no >= :first
    AND (:jobs IS NULL OR r.job_uuid IN (SELECT value FROM json_each(:jobs)))
    AND (:states IS NULL OR r.state IN (SELECT value FROM json_each(:states)))
    AND (:origin IS NULL OR r.origin = :origin)
    AND (:since IS NULL OR r.scheduled_time >= :since)
    AND (:until IS NULL OR r.scheduled_time < :until)
ORDER BY r.run_no DESC
LIMIT :limit;

-- name: page_of_jobs_runs
-- Numbers stand in every index, so that rows are read only where a filter asks for more than the range of keys.
SELECT run_no FROM (
    SELECT r.run_no
    FROM json_each(:jobs) j
    CROSS JOIN sys.job_runs r ON r.job_uuid = j.value
        AND r.idempotency_key >= :since_key AND r.idempotency_key < :until_key
    WHERE r.run_no < :before AND r.run_no >= :first
        AND (:states IS NULL OR r.state IN (SELECT value FROM json_each(:states)))
        AND (:origin IS NULL OR r.origin = :origin)
        AND (:since IS NULL OR r.scheduled_time >= :since)
        AND (:until IS NULL OR r.scheduled_time < :until)
    UNION ALL
    SELECT r.run_no
    FROM json_each(:jobs) j
    CROSS JOIN sys.job_runs r INDEXED BY job_runs_manual ON r.job_uuid = j.value
    WHERE r.origin <> 'SCHEDULE' AND r.run_no < :before AND r.run_no >= :first
        AND (:states IS NULL OR r.state IN (SELECT value FROM json_each(:states)))
        AND (:origin IS NULL OR r.origin = :origin)
        AND r.scheduled_time >= coalesce(:since, -1)
        AND (:until IS NULL OR r.scheduled_time < :until)
)
ORDER BY run_no DESC
LIMIT :limit;

-- name: read_runs
SELECT
    r.job_uuid,
    r.job_run_uuid, coalesce(j.job_name, t.job_name, ''), r.state, r.scheduled_time, r.chosen_time, r.origin, r.version,
    r.fence, r.created_at, r.idempotency_key, r.not_before, r.waiting_for, r.started_at, r.completed_at,
    r.assigned_node_uuid, r.reason, r.is_recovery, r.covers_from, r.covers_to, r.covers_count, r.replay_of,
    r.cancel_requested_at, r.cancelled_by, r.retry_count, r.replay_reason,
    (SELECT a.error_message FROM sys.task_attempts a WHERE a.run_no = r.run_no AND a.error_message IS NOT NULL
     ORDER BY a.position DESC, a.attempt_no DESC LIMIT 1),
    r.payload
FROM json_each(:runs) w
CROSS JOIN sys.job_runs r ON r.run_no = w.value
LEFT JOIN sys.jobs j ON j.job_uuid = r.job_uuid
LEFT JOIN sys.job_tombstones t ON t.job_uuid = r.job_uuid
ORDER BY r.run_no DESC;

-- name: read_pace
SELECT coalesce(j.job_name, t.job_name, ''), r.started_at - r.chosen_time, r.completed_at - r.started_at
FROM json_each(:runs) w
CROSS JOIN sys.job_runs r ON r.run_no = w.value
LEFT JOIN sys.jobs j ON j.job_uuid = r.job_uuid
LEFT JOIN sys.job_tombstones t ON t.job_uuid = r.job_uuid
WHERE r.started_at IS NOT NULL
ORDER BY r.run_no DESC;

-- name: tally_of_job
SELECT (scheduled_time - :since) / :step, state, sum(covers_count)
FROM (
    SELECT r.scheduled_time, r.state, CASE WHEN r.reason = 'paused' THEN 1 ELSE r.covers_count END AS covers_count
    FROM sys.job_runs r
    WHERE r.job_uuid = :job AND r.idempotency_key >= :since_key AND r.idempotency_key < :until_key
        AND r.scheduled_time >= :since AND r.scheduled_time < :until
    UNION ALL
    SELECT m.scheduled_time, m.state, m.covers_count FROM sys.job_runs m INDEXED BY job_runs_manual
    WHERE m.job_uuid = :job AND m.origin <> 'SCHEDULE' AND m.scheduled_time >= :since AND m.scheduled_time < :until
)
GROUP BY 1, 2
ORDER BY 1, 2;

-- name: tally_of_jobs
SELECT (r.completed_at - :since) / :step, r.state, sum(CASE WHEN r.reason = 'paused' THEN 1 ELSE r.covers_count END)
FROM sys.job_runs r INDEXED BY job_runs_completed
WHERE r.completed_at >= :since AND r.completed_at < :until
    AND (:jobs IS NULL OR r.job_uuid IN (SELECT value FROM json_each(:jobs)))
GROUP BY 1, 2
ORDER BY 1, 2;

-- name: overdue_jobs
SELECT
    count(*), min(wake_at),
    (
        SELECT o.job_name FROM sys.jobs o INDEXED BY jobs_wake
        WHERE o.wake_at < :late
        ORDER BY o.wake_at, o.job_uuid LIMIT 1
    )
FROM sys.jobs INDEXED BY jobs_wake
WHERE wake_at < :late;

-- name: oldest_overdue_jobs
SELECT job_uuid, version, job_name, wake_at FROM sys.jobs INDEXED BY jobs_wake
WHERE wake_at < :late
ORDER BY wake_at, job_uuid
LIMIT :limit;

-- name: jobs_ahead_of_the_clock
-- Planned at a time that is still to come, by a clock that was set back since. What people moved to before its own time
-- was planned in the past.
SELECT job_name, planned_until, last_enqueued_at, count(*) OVER () FROM sys.jobs
WHERE planned_until > :clock AND last_enqueued_at > :clock + :tolerated AND state = 'ENABLED'
    AND (:job IS NULL OR job_name = :job)
ORDER BY planned_until DESC, job_name
LIMIT :limit;

-- name: overdue_runs
SELECT
    count(*), min(not_before),
    (
        SELECT j.job_name FROM sys.job_runs r INDEXED BY job_runs_claim
        LEFT JOIN sys.jobs j ON j.job_uuid = r.job_uuid
        WHERE r.not_before < :late
        ORDER BY r.not_before, r.run_no LIMIT 1
    )
FROM sys.job_runs INDEXED BY job_runs_claim
WHERE not_before < :late;

-- name: list_versions
SELECT version, definition, source, author, reason, created_at, defaults FROM sys.job_versions
WHERE job_uuid = :job AND version < :before
ORDER BY version DESC
LIMIT :limit;

-- name: list_trail
SELECT
    a.audit_no, a.at, a.event, a.actor, a.outcome, coalesce(j.job_name, t.job_name), a.job_run_uuid, a.details,
    a.position IS NOT NULL
FROM sys.audit a
LEFT JOIN sys.jobs j ON j.job_uuid = a.job_uuid
LEFT JOIN sys.job_tombstones t ON t.job_uuid = a.job_uuid
WHERE a.audit_no < :before
    AND (:event IS NULL OR a.event = :event)
    AND (:actor IS NULL OR a.actor = :actor)
    AND (:job IS NULL OR a.job_uuid = :job)
ORDER BY a.audit_no DESC
LIMIT :limit;

-- name: output_after
SELECT o.chunk_no, o.text
FROM sys.attempt_output f
JOIN sys.attempt_output o ON o.run_no = f.run_no AND o.position = f.position AND o.attempt_no = f.attempt_no
WHERE f.attempt_uuid = :attempt AND f.chunk_no = 0 AND o.chunk_no >= :after
ORDER BY o.chunk_no;

-- name: jobs_timed
SELECT job_name FROM sys.jobs WHERE timeout_seconds = :seconds ORDER BY job_name;
