-- What pages and lists look at. Nothing here writes, and all of it may run beside the engine, on connections of its own.

-- name: seen_jobs
SELECT job_uuid FROM sys.jobs WHERE created_by_user_uuid = :viewer::uuid OR job_uuid = ANY (:granted::uuid[]);

-- name: count_all_jobs
SELECT count(*) FROM sys.jobs;

-- name: count_found_jobs
-- Names are compared by their bytes, but searched for in the database's own letters.
SELECT count(*) FROM sys.jobs j
WHERE (:state::text IS NULL OR j.state = :state::text)
    AND (:namespace::text IS NULL OR j.namespace = :namespace::text)
    AND (:owner::uuid IS NULL OR j.created_by_user_uuid = :owner::uuid)
    AND (:tag::text IS NULL OR j.tags::jsonb ? :tag::text)
    AND (:viewer::uuid IS NULL OR j.created_by_user_uuid = :viewer::uuid OR j.job_uuid = ANY (:granted::uuid[]))
    AND (:search::text IS NULL OR strpos(lower(j.job_name COLLATE "default"), lower(:search::text)) > 0
        OR strpos(lower(j.description), lower(:search::text)) > 0
        OR EXISTS (
            SELECT 1 FROM jsonb_array_elements_text(j.tags::jsonb) t WHERE strpos(lower(t), lower(:search::text)) > 0
        ));

-- name: jobs_by_name
SELECT j.job_uuid FROM sys.jobs j
WHERE (:state::text IS NULL OR j.state = :state::text)
    AND (:namespace::text IS NULL OR j.namespace = :namespace::text)
    AND (:owner::uuid IS NULL OR j.created_by_user_uuid = :owner::uuid)
    AND (:tag::text IS NULL OR j.tags::jsonb ? :tag::text)
    AND (:viewer::uuid IS NULL OR j.created_by_user_uuid = :viewer::uuid OR j.job_uuid = ANY (:granted::uuid[]))
    AND (:search::text IS NULL OR strpos(lower(j.job_name COLLATE "default"), lower(:search::text)) > 0
        OR strpos(lower(j.description), lower(:search::text)) > 0
        OR EXISTS (
            SELECT 1 FROM jsonb_array_elements_text(j.tags::jsonb) t WHERE strpos(lower(t), lower(:search::text)) > 0
        ))
ORDER BY j.job_name
LIMIT :limit OFFSET :offset;

-- name: jobs_by_name_down
SELECT j.job_uuid FROM sys.jobs j
WHERE (:state::text IS NULL OR j.state = :state::text)
    AND (:namespace::text IS NULL OR j.namespace = :namespace::text)
    AND (:owner::uuid IS NULL OR j.created_by_user_uuid = :owner::uuid)
    AND (:tag::text IS NULL OR j.tags::jsonb ? :tag::text)
    AND (:viewer::uuid IS NULL OR j.created_by_user_uuid = :viewer::uuid OR j.job_uuid = ANY (:granted::uuid[]))
    AND (:search::text IS NULL OR strpos(lower(j.job_name COLLATE "default"), lower(:search::text)) > 0
        OR strpos(lower(j.description), lower(:search::text)) > 0
        OR EXISTS (
            SELECT 1 FROM jsonb_array_elements_text(j.tags::jsonb) t WHERE strpos(lower(t), lower(:search::text)) > 0
        ))
ORDER BY j.job_name DESC
LIMIT :limit OFFSET :offset;

-- name: jobs_by_column
-- Sorting by anything but names reads all that were found: a list of jobs is sorted whole, or not at all.
SELECT job_uuid FROM (
    SELECT
        j.job_uuid, j.job_name,
        CASE :sort::text WHEN 'state' THEN j.state WHEN 'owner' THEN u.user_name END COLLATE "C" AS word,
        CASE :sort::text
            WHEN 'next_run_time' THEN j.next_run_time
            WHEN 'updated_at' THEN j.updated_at
            -- The latest by nominal time that does not wait: a scheduled one by its key, any other by its own index.
            WHEN 'last_run' THEN greatest(
                (
                    SELECT r.scheduled_time FROM sys.job_runs r
                    WHERE r.job_uuid = j.job_uuid AND r.idempotency_key >= 'schedule:' AND r.idempotency_key < 'schedule;'
                        AND r.state NOT IN ('PENDING', 'QUEUED')
                    ORDER BY r.idempotency_key DESC LIMIT 1
                ),
                (
                    SELECT m.scheduled_time FROM sys.job_runs m
                    WHERE m.job_uuid = j.job_uuid AND m.origin <> 'SCHEDULE' AND m.state NOT IN ('PENDING', 'QUEUED')
                    ORDER BY m.scheduled_time DESC LIMIT 1
                )
            )
        END AS at
    FROM sys.jobs j
    LEFT JOIN sys.users u ON u.user_uuid = j.created_by_user_uuid
    WHERE (:state::text IS NULL OR j.state = :state::text)
        AND (:namespace::text IS NULL OR j.namespace = :namespace::text)
        AND (:owner::uuid IS NULL OR j.created_by_user_uuid = :owner::uuid)
        AND (:tag::text IS NULL OR j.tags::jsonb ? :tag::text)
        AND (:viewer::uuid IS NULL OR j.created_by_user_uuid = :viewer::uuid OR j.job_uuid = ANY (:granted::uuid[]))
        AND (:search::text IS NULL OR strpos(lower(j.job_name COLLATE "default"), lower(:search::text)) > 0
            OR strpos(lower(j.description), lower(:search::text)) > 0
            OR EXISTS (
                SELECT 1 FROM jsonb_array_elements_text(j.tags::jsonb) t WHERE strpos(lower(t), lower(:search::text)) > 0
            ))
) found
ORDER BY
    at IS NULL, CASE WHEN :descending::boolean THEN -at ELSE at END,
    CASE WHEN NOT :descending::boolean THEN word END, CASE WHEN :descending::boolean THEN word END DESC,
    job_name
LIMIT :limit OFFSET :offset;

-- name: read_jobs
SELECT
    j.job_uuid, j.job_name, j.version, j.state, j.planned_until, j.wake_at, j.first_seen, j.paused_until, j.moved_slot,
    j.moved_to, j.covered_until, j.next_run_time, j.last_enqueued_at, j.pause_note, j.namespace, j.created_at,
    j.updated_at, j.registered, coalesce(v.author, 'local'), u.user_name
FROM unnest(:jobs::uuid[]) WITH ORDINALITY AS wanted (uuid, place)
JOIN sys.jobs j ON j.job_uuid = wanted.uuid
LEFT JOIN sys.users u ON u.user_uuid = j.created_by_user_uuid
LEFT JOIN sys.job_versions v ON v.job_uuid = j.job_uuid
    AND v.version = (
        SELECT min(w.version) FROM sys.job_versions w WHERE w.job_uuid = j.job_uuid AND w.created_at >= j.created_at
    )
ORDER BY wanted.place;

-- name: latest_runs
-- Of each job, as many as asked for by nominal time: scheduled ones by their keys, all others by their own index.
SELECT s.job_uuid, s.run_no, s.job_run_uuid, s.state, s.scheduled_time, s.chosen_time, s.started_at, s.completed_at
FROM unnest(:jobs::uuid[]) AS wanted (uuid)
CROSS JOIN LATERAL (
    SELECT * FROM sys.job_runs r
    WHERE r.job_uuid = wanted.uuid AND r.idempotency_key >= :since_key AND r.idempotency_key < :until_key
        AND r.run_no < :before AND r.state = ANY (:states::text[])
        AND (:origin::text IS NULL OR r.origin = :origin::text)
        AND (:since::bigint IS NULL OR r.scheduled_time >= :since::bigint)
        AND (:until::bigint IS NULL OR r.scheduled_time < :until::bigint)
    ORDER BY r.idempotency_key DESC LIMIT :most
) s
UNION ALL
SELECT s.job_uuid, s.run_no, s.job_run_uuid, s.state, s.scheduled_time, s.chosen_time, s.started_at, s.completed_at
FROM unnest(:jobs::uuid[]) AS wanted (uuid)
CROSS JOIN LATERAL (
    SELECT * FROM sys.job_runs m
    WHERE m.job_uuid = wanted.uuid AND m.origin <> 'SCHEDULE'
        AND m.run_no < :before AND m.state = ANY (:states::text[])
        AND (:origin::text IS NULL OR m.origin = :origin::text)
        AND m.scheduled_time >= coalesce(:since::bigint, -1)
        AND (:until::bigint IS NULL OR m.scheduled_time < :until::bigint)
    ORDER BY m.scheduled_time DESC, m.run_no DESC LIMIT :most
) s;

-- name: read_schedules
-- As `cb_schedules` has it.
SELECT
    j.job_name, j.job_no, CASE WHEN j.job_type = 'TASKS' THEN 'flow' ELSE 'task' END, j.schedule_text,
    greatest(
        (
            SELECT r.started_at FROM sys.job_runs r
            WHERE r.job_uuid = j.job_uuid AND r.idempotency_key >= 'schedule:' AND r.idempotency_key < 'schedule;'
                AND r.started_at IS NOT NULL
            ORDER BY r.idempotency_key DESC LIMIT 1
        ),
        (SELECT max(m.started_at) FROM sys.job_runs m WHERE m.job_uuid = j.job_uuid AND m.origin <> 'SCHEDULE')
    )
FROM sys.jobs j
WHERE j.job_uuid = ANY (:jobs::uuid[]);

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
JOIN sys.jobs j ON j.job_uuid = d.job_uuid
WHERE d.depends_on_job_uuid = :job::uuid
ORDER BY j.job_name
LIMIT :limit;

-- name: strips
-- Of each job, as many as asked for of those that have begun, by nominal time: scheduled ones, and all others. As JSON:
-- a thousand small rows take longer to hand over than to find.
SELECT
    wanted.uuid,
    (
        SELECT json_agg(json_build_array(run_no, job_run_uuid, state, scheduled_time, started_at, completed_at))::text
        FROM (
            SELECT * FROM sys.job_runs r
            WHERE r.job_uuid = wanted.uuid AND r.idempotency_key >= 'schedule:' AND r.idempotency_key < 'schedule;'
                AND r.state <> 'PENDING' AND r.state <> 'QUEUED'
            ORDER BY r.idempotency_key DESC LIMIT :most
        ) s
    ),
    (
        SELECT json_agg(json_build_array(run_no, job_run_uuid, state, scheduled_time, started_at, completed_at))::text
        FROM (
            SELECT * FROM sys.job_runs m
            WHERE m.job_uuid = wanted.uuid AND m.origin <> 'SCHEDULE'
                AND m.state <> 'PENDING' AND m.state <> 'QUEUED'
            ORDER BY m.scheduled_time DESC, m.run_no DESC LIMIT :most
        ) s
    )
FROM unnest(:jobs::uuid[]) AS wanted (uuid);

-- name: newest_run
SELECT coalesce(max(run_no), 0) FROM sys.job_runs;

-- name: mark_of_runs
-- One row where another node lives, else none.
SELECT
    (SELECT coalesce(max(run_no), 0) FROM sys.job_runs),
    count(*), count(*) FILTER (WHERE state = 'RUNNING'), coalesce(sum(fence), 0)::bigint
FROM sys.job_runs
WHERE completed_at IS NULL
HAVING EXISTS (SELECT 1 FROM sys.nodes WHERE state = 'ALIVE' AND node_uuid <> :node::uuid);

-- name: page_of_runs
SELECT r.run_no FROM sys.job_runs r
WHERE r.run_no < :before AND r.run_no >= :first
    AND (:jobs::uuid[] IS NULL OR r.job_uuid IN (SELECT unnest(:jobs::uuid[])))
    AND (:states::text[] IS NULL OR r.state = ANY (:states::text[]))
    AND (:origin::text IS NULL OR r.origin = :origin::text)
    AND (:since::bigint IS NULL OR r.scheduled_time >= :since::bigint)
    AND (:until::bigint IS NULL OR r.scheduled_time < :until::bigint)
ORDER BY r.run_no DESC
LIMIT :limit;

-- name: page_of_runs_between
-- By the index of ids, which OFFSET 0 sees to: else all runs might be walked in the order of their numbers.
SELECT run_no FROM (
    SELECT r.run_no FROM sys.job_runs r
    WHERE r.job_run_uuid BETWEEN :lowest::uuid AND :highest::uuid
        AND (:jobs::uuid[] IS NULL OR r.job_uuid IN (SELECT unnest(:jobs::uuid[])))
        AND (:states::text[] IS NULL OR r.state = ANY (:states::text[]))
        AND (:origin::text IS NULL OR r.origin = :origin::text)
        AND (:since::bigint IS NULL OR r.scheduled_time >= :since::bigint)
        AND (:until::bigint IS NULL OR r.scheduled_time < :until::bigint)
    OFFSET 0
) found
WHERE run_no < :before AND run_no >= :first
ORDER BY run_no DESC
LIMIT :limit;

-- name: page_of_active_runs
-- Read whole and then sorted, which OFFSET 0 sees to: they are few, and may be anywhere among the others.
SELECT run_no FROM (
    SELECT r.run_no FROM sys.job_runs r
    WHERE r.completed_at IS NULL
        AND (:jobs::uuid[] IS NULL OR r.job_uuid IN (SELECT unnest(:jobs::uuid[])))
        AND (:states::text[] IS NULL OR r.state = ANY (:states::text[]))
        AND (:origin::text IS NULL OR r.origin = :origin::text)
        AND (:since::bigint IS NULL OR r.scheduled_time >= :since::bigint)
        AND (:until::bigint IS NULL OR r.scheduled_time < :until::bigint)
    OFFSET 0
) found
WHERE run_no < :before AND run_no >= :first
ORDER BY run_no DESC
LIMIT :limit;

-- name: page_of_failed_runs
SELECT r.run_no FROM sys.job_runs r
WHERE (r.state IN ('FAILED', 'FAILED_STALE') OR (r.state = 'CANCELLED' AND r.reason = 'timeout'))
    AND r.run_no < :before AND r.run_no >= :first
    AND (:jobs::uuid[] IS NULL OR r.job_uuid IN (SELECT unnest(:jobs::uuid[])))
    AND (:states::text[] IS NULL OR r.state = ANY (:states::text[]))
    AND (:origin::text IS NULL OR r.origin = :origin::text)
    AND (:since::bigint IS NULL OR r.scheduled_time >= :since::bigint)
    AND (:until::bigint IS NULL OR r.scheduled_time < :until::bigint)
ORDER BY r.run_no DESC
LIMIT :limit;

-- name: page_of_jobs_runs
SELECT run_no FROM (
    SELECT r.run_no FROM sys.job_runs r
    WHERE r.job_uuid = ANY (:jobs::uuid[]) AND r.idempotency_key >= :since_key AND r.idempotency_key < :until_key
        AND r.run_no < :before AND r.run_no >= :first
        AND (:states::text[] IS NULL OR r.state = ANY (:states::text[]))
        AND (:origin::text IS NULL OR r.origin = :origin::text)
        AND (:since::bigint IS NULL OR r.scheduled_time >= :since::bigint)
        AND (:until::bigint IS NULL OR r.scheduled_time < :until::bigint)
    UNION ALL
    SELECT r.run_no FROM sys.job_runs r
    WHERE r.job_uuid = ANY (:jobs::uuid[]) AND r.origin <> 'SCHEDULE'
        AND r.run_no < :before AND r.run_no >= :first
        AND (:states::text[] IS NULL OR r.state = ANY (:states::text[]))
        AND (:origin::text IS NULL OR r.origin = :origin::text)
        AND r.scheduled_time >= coalesce(:since::bigint, -1)
        AND (:until::bigint IS NULL OR r.scheduled_time < :until::bigint)
) found
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
FROM sys.job_runs r
LEFT JOIN sys.jobs j ON j.job_uuid = r.job_uuid
LEFT JOIN sys.job_tombstones t ON t.job_uuid = r.job_uuid
WHERE r.run_no = ANY (:runs::bigint[])
ORDER BY r.run_no DESC;

-- name: read_pace
SELECT coalesce(j.job_name, t.job_name, ''), r.started_at - r.chosen_time, r.completed_at - r.started_at
FROM sys.job_runs r
LEFT JOIN sys.jobs j ON j.job_uuid = r.job_uuid
LEFT JOIN sys.job_tombstones t ON t.job_uuid = r.job_uuid
WHERE r.run_no = ANY (:runs::bigint[]) AND r.started_at IS NOT NULL
ORDER BY r.run_no DESC;

-- name: tally_of_job
SELECT (scheduled_time - :since::bigint) / :step::bigint, state, sum(covers_count)::bigint
FROM (
    SELECT r.scheduled_time, r.state, CASE WHEN r.reason = 'paused' THEN 1 ELSE r.covers_count END AS covers_count
    FROM sys.job_runs r
    WHERE r.job_uuid = :job::uuid AND r.idempotency_key >= :since_key AND r.idempotency_key < :until_key
        AND r.scheduled_time >= :since::bigint AND r.scheduled_time < :until::bigint
    UNION ALL
    SELECT m.scheduled_time, m.state, m.covers_count FROM sys.job_runs m
    WHERE m.job_uuid = :job::uuid AND m.origin <> 'SCHEDULE'
        AND m.scheduled_time >= :since::bigint AND m.scheduled_time < :until::bigint
) found
GROUP BY 1, 2
ORDER BY 1, state COLLATE "C";

-- name: tally_of_jobs
SELECT (r.completed_at - :since::bigint) / :step::bigint, r.state, sum(CASE WHEN r.reason = 'paused' THEN 1 ELSE r.covers_count END)::bigint
FROM sys.job_runs r
WHERE r.completed_at >= :since::bigint AND r.completed_at < :until::bigint
    AND (:jobs::uuid[] IS NULL OR r.job_uuid IN (SELECT unnest(:jobs::uuid[])))
GROUP BY 1, 2
ORDER BY 1, r.state COLLATE "C";

-- name: overdue_jobs
SELECT
    count(*), min(wake_at),
    (SELECT o.job_name FROM sys.jobs o WHERE o.wake_at < :late::bigint ORDER BY o.wake_at, o.job_uuid LIMIT 1)
FROM sys.jobs
WHERE wake_at < :late::bigint;

-- name: oldest_overdue_jobs
SELECT job_uuid, version, job_name, wake_at FROM sys.jobs
WHERE wake_at < :late
ORDER BY wake_at, job_uuid
LIMIT :limit;

-- name: jobs_ahead_of_the_clock
-- Planned at a time that is still to come, by a clock that was set back since. What people moved to before its own time
-- was planned in the past.
SELECT job_name, planned_until, last_enqueued_at, count(*) OVER () FROM sys.jobs
WHERE planned_until > :clock::bigint AND last_enqueued_at > :clock::bigint + :tolerated::bigint AND state = 'ENABLED'
    AND (:job::text IS NULL OR job_name = :job::text)
ORDER BY planned_until DESC, job_name
LIMIT :limit;

-- name: overdue_runs
SELECT
    count(*), min(not_before),
    (
        SELECT j.job_name FROM sys.job_runs r
        LEFT JOIN sys.jobs j ON j.job_uuid = r.job_uuid
        WHERE r.not_before < :late::bigint
        ORDER BY r.not_before, r.run_no LIMIT 1
    )
FROM sys.job_runs
WHERE not_before < :late::bigint;

-- name: list_versions
SELECT version, definition, source, author, reason, created_at, defaults FROM sys.job_versions
WHERE job_uuid = :job::uuid AND version < :before
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
    AND (:event::text IS NULL OR a.event = :event::text)
    AND (:actor::text IS NULL OR a.actor = :actor::text)
    AND (:job::uuid IS NULL OR a.job_uuid = :job::uuid)
ORDER BY a.audit_no DESC
LIMIT :limit;

-- name: output_after
SELECT o.chunk_no, o.text
FROM sys.attempt_output f
JOIN sys.attempt_output o ON o.run_no = f.run_no AND o.position = f.position AND o.attempt_no = f.attempt_no
WHERE f.attempt_uuid = :attempt::uuid AND f.chunk_no = 0 AND o.chunk_no >= :after
ORDER BY o.chunk_no;

-- name: jobs_timed
SELECT job_name FROM sys.jobs WHERE timeout_seconds = :seconds ORDER BY job_name;
