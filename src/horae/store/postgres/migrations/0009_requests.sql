-- Schedules by SQL: cb_schedules also takes INSERT and DELETE and shows what was asked for; sys.jobs refuses what would
-- leave a job half changed. A release before this one goes on working, but knows no requests to create or drop: it closes
-- the one with the error "The job does not exist any more", the other with one about its cron expression, and they are
-- lost. Upgrade every node before anybody uses INSERT or DELETE.
-- min_reader: 1

-- The name stands for a job that is still to be created. A request counts from requested_at.
ALTER TABLE sys.schedule_requests ADD COLUMN job_name TEXT COLLATE "C";
UPDATE sys.schedule_requests r SET job_name = j.job_name FROM sys.jobs j WHERE j.job_uuid = r.job_uuid;
ALTER TABLE sys.schedule_requests ALTER COLUMN job_uuid DROP NOT NULL;
ALTER TABLE sys.schedule_requests DROP CONSTRAINT schedule_requests_field_check;
ALTER TABLE sys.schedule_requests ADD CONSTRAINT schedule_requests_field_check
    CHECK (field IN ('enabled', 'next_run_at', 'cron_spec', 'create', 'drop'));
CREATE INDEX schedule_requests_name ON sys.schedule_requests (job_name, request_no) WHERE applied_at IS NULL;

-- Counts the times that Horae itself wrote a job's state and cursors together: what the guard below goes by.
ALTER TABLE sys.jobs ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;

CREATE OR REPLACE VIEW sys.cb_schedules AS
WITH pending AS (
    SELECT
        r.job_name,
        max(r.request_no) FILTER (WHERE r.field = 'drop') AS dropped,
        max(r.request_no) FILTER (WHERE r.field = 'create') AS created
    FROM sys.schedule_requests r
    WHERE r.applied_at IS NULL AND r.job_name IS NOT NULL
    GROUP BY r.job_name
), asked AS (
    SELECT
        p.job_name, p.dropped, p.created, enabled.value AS enabled, cron.request_no AS cron_no, cron.value AS cron_spec,
        moved.request_no AS moved_no, moved.value AS next_run_at
    FROM pending p
    LEFT JOIN LATERAL (
        SELECT r.value FROM sys.schedule_requests r
        WHERE r.applied_at IS NULL AND r.job_name = p.job_name AND r.field = 'enabled'
            AND r.request_no > coalesce(greatest(p.dropped, p.created), 0)
        ORDER BY r.request_no DESC LIMIT 1
    ) enabled ON true
    LEFT JOIN LATERAL (
        SELECT r.request_no, r.value FROM sys.schedule_requests r
        WHERE r.applied_at IS NULL AND r.job_name = p.job_name AND r.field = 'cron_spec'
            AND r.request_no > coalesce(greatest(p.dropped, p.created), 0)
        ORDER BY r.request_no DESC LIMIT 1
    ) cron ON true
    LEFT JOIN LATERAL (
        SELECT r.request_no, r.value FROM sys.schedule_requests r
        WHERE r.applied_at IS NULL AND r.job_name = p.job_name AND r.field = 'next_run_at'
            AND r.request_no > coalesce(greatest(p.dropped, p.created, cron.request_no), 0)
        ORDER BY r.request_no DESC LIMIT 1
    ) moved ON true
)
SELECT
    j.job_no AS id,
    j.job_name::text AS name,
    CASE WHEN j.job_type = 'TASKS' THEN 'flow' ELSE 'task' END AS kind,
    coalesce(a.cron_spec, j.schedule_text) AS cron_spec,
    CASE
        WHEN a.moved_no IS NOT NULL THEN a.next_run_at::timestamptz
        WHEN a.cron_no IS NULL THEN to_timestamp(j.next_run_time / 1000.0)
    END AS next_run_at,
    to_timestamp(greatest(
        (
            SELECT r.started_at FROM sys.job_runs r
            WHERE r.job_uuid = j.job_uuid AND r.idempotency_key >= 'schedule:' AND r.idempotency_key < 'schedule;'
                AND r.started_at IS NOT NULL
            ORDER BY r.idempotency_key DESC LIMIT 1
        ),
        (SELECT max(r.started_at) FROM sys.job_runs r WHERE r.job_uuid = j.job_uuid AND r.origin <> 'SCHEDULE')
    ) / 1000.0) AS last_run_at,
    to_timestamp(j.last_enqueued_at / 1000.0) AS last_enqueued_at,
    coalesce(a.enabled = '1', j.state = 'ENABLED') AS enabled,
    to_timestamp(j.created_at / 1000.0) AS created_at,
    to_timestamp(j.updated_at / 1000.0) AS updated_at
FROM sys.jobs j
LEFT JOIN asked a ON a.job_name = j.job_name
WHERE a.dropped IS NULL
UNION ALL
SELECT
    NULL::bigint,
    a.job_name::text,
    'task',
    coalesce(a.cron_spec, c.value::jsonb ->> 'cron_spec'),
    CASE
        WHEN a.moved_no IS NOT NULL THEN a.next_run_at::timestamptz
        WHEN a.cron_no IS NULL THEN (c.value::jsonb ->> 'next_run_at')::timestamptz
    END,
    NULL::timestamptz,
    NULL::timestamptz,
    coalesce(a.enabled = '1', (c.value::jsonb ->> 'enabled')::boolean),
    to_timestamp(c.requested_at / 1000.0),
    to_timestamp(c.requested_at / 1000.0)
FROM asked a
JOIN sys.schedule_requests c ON c.request_no = a.created
WHERE a.created > coalesce(a.dropped, 0)
    AND (a.dropped IS NOT NULL OR NOT EXISTS (SELECT 1 FROM sys.jobs j WHERE j.job_name = a.job_name));

CREATE OR REPLACE FUNCTION sys.cb_schedules_update() RETURNS trigger LANGUAGE plpgsql AS $function$
DECLARE
    job uuid;
    at bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    -- A time that no calendar of ours has is kept as it was written, to be refused: to_char would drop its BC.
    following text := CASE
        WHEN new.next_run_at >= '0001-01-01T00:00:00Z' AND new.next_run_at < '10000-01-01T00:00:00Z'
            THEN to_char(new.next_run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
        ELSE (new.next_run_at AT TIME ZONE 'UTC')::text
    END;
BEGIN
    IF (new.id, new.name, new.kind, new.last_run_at, new.last_enqueued_at, new.created_at, new.updated_at)
        IS DISTINCT FROM (old.id, old.name, old.kind, old.last_run_at, old.last_enqueued_at, old.created_at, old.updated_at)
    THEN
        RAISE EXCEPTION 'cb_schedules takes UPDATE of enabled, next_run_at and cron_spec only';
    END IF;
    SELECT job_uuid INTO job FROM sys.jobs WHERE job_name = old.name;
    IF new.enabled IS DISTINCT FROM old.enabled THEN
        INSERT INTO sys.schedule_requests (job_uuid, job_name, field, value, requested_at, requested_by)
        VALUES (job, old.name, 'enabled', CASE WHEN new.enabled THEN '1' ELSE '0' END, at, session_user);
    END IF;
    IF new.cron_spec IS DISTINCT FROM old.cron_spec THEN
        INSERT INTO sys.schedule_requests (job_uuid, job_name, field, value, requested_at, requested_by)
        VALUES (job, old.name, 'cron_spec', new.cron_spec, at, session_user);
    END IF;
    IF new.next_run_at IS DISTINCT FROM old.next_run_at THEN
        INSERT INTO sys.schedule_requests (job_uuid, job_name, field, value, requested_at, requested_by)
        VALUES (job, old.name, 'next_run_at', following, at, session_user);
    END IF;
    IF (new.enabled, new.cron_spec, new.next_run_at) IS DISTINCT FROM (old.enabled, old.cron_spec, old.next_run_at) THEN
        INSERT INTO sys.audit (at, event, job_uuid, actor, outcome, details)
        VALUES (at, 'SCHEDULE_REQUESTED', job, session_user, 'REQUESTED', json_build_object(
            'name', old.name, 'enabled', new.enabled, 'next_run_at', new.next_run_at, 'cron_spec', new.cron_spec)::text);
        PERFORM pg_notify('horae', '');
    END IF;
    RETURN new;
END
$function$;

CREATE FUNCTION sys.cb_schedules_insert() RETURNS trigger LANGUAGE plpgsql AS $function$
DECLARE
    at bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    job text;
    -- A time that no calendar of ours has is kept as it was written, to be refused: to_char would drop its BC.
    following text := CASE
        WHEN new.next_run_at >= '0001-01-01T00:00:00Z' AND new.next_run_at < '10000-01-01T00:00:00Z'
            THEN to_char(new.next_run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
        ELSE (new.next_run_at AT TIME ZONE 'UTC')::text
    END;
BEGIN
    IF (new.id, new.last_run_at, new.last_enqueued_at, new.created_at, new.updated_at) IS DISTINCT FROM
        (NULL::bigint, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz)
    THEN
        RAISE EXCEPTION 'cb_schedules takes INSERT of name, kind, cron_spec, next_run_at and enabled only';
    END IF;
    IF coalesce(new.name, '') = '' OR coalesce(new.cron_spec, '') = '' THEN
        RAISE EXCEPTION 'cb_schedules: a schedule needs a name and a cron_spec';
    END IF;
    IF coalesce(new.kind, 'task') <> 'task' THEN
        RAISE EXCEPTION 'cb_schedules takes INSERT of kind ''task'' only: define a job of several tasks in Python, TOML or SQL';
    END IF;
    -- Two sessions with one new name: the second sees what the first has written.
    PERFORM pg_advisory_xact_lock(hashtext('horae.cb_schedules'), hashtext(new.name));
    IF EXISTS (SELECT 1 FROM sys.cb_schedules WHERE name = new.name) THEN
        RETURN NULL;
    END IF;
    new.kind := 'task';
    new.enabled := coalesce(new.enabled, true);
    job := json_build_object('cron_spec', new.cron_spec, 'enabled', new.enabled, 'next_run_at', following)::text;
    INSERT INTO sys.schedule_requests (job_name, field, value, requested_at, requested_by)
    VALUES (new.name, 'create', job, at, session_user);
    INSERT INTO sys.audit (at, event, actor, outcome, details)
    VALUES (at, 'SCHEDULE_REQUESTED', session_user, 'REQUESTED', json_build_object('name', new.name, 'create', job::json)::text);
    PERFORM pg_notify('horae', '');
    RETURN new;
END
$function$;

CREATE TRIGGER cb_schedules_insert INSTEAD OF INSERT ON sys.cb_schedules
FOR EACH ROW EXECUTE FUNCTION sys.cb_schedules_insert();

CREATE FUNCTION sys.cb_schedules_delete() RETURNS trigger LANGUAGE plpgsql AS $function$
DECLARE
    job uuid;
    at bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
BEGIN
    SELECT job_uuid INTO job FROM sys.jobs WHERE job_name = old.name;
    INSERT INTO sys.schedule_requests (job_uuid, job_name, field, requested_at, requested_by)
    VALUES (job, old.name, 'drop', at, session_user);
    INSERT INTO sys.audit (at, event, job_uuid, actor, outcome, details)
    VALUES (at, 'SCHEDULE_REQUESTED', job, session_user, 'REQUESTED', json_build_object('name', old.name, 'drop', true)::text);
    PERFORM pg_notify('horae', '');
    RETURN old;
END
$function$;

CREATE TRIGGER cb_schedules_delete INSTEAD OF DELETE ON sys.cb_schedules
FOR EACH ROW EXECUTE FUNCTION sys.cb_schedules_delete();

-- The guards of sys.jobs: plain rules on the row's old and new values. Creating runs moves the cursor, which the first
-- comparison of jobs_cursor sees, so nothing is called then.
CREATE FUNCTION sys.jobs_guard() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
    IF tg_op = 'TRUNCATE' THEN
        RAISE EXCEPTION 'sys.jobs cannot be truncated, the cursors of its jobs would be lost'
            USING ERRCODE = 'check_violation', HINT = 'Use DROP JOB through horae sql, or DELETE FROM sys.cb_schedules.';
    ELSIF tg_op = 'DELETE' THEN
        IF NOT EXISTS (SELECT 1 FROM sys.job_tombstones WHERE job_uuid = old.job_uuid) THEN
            RAISE EXCEPTION 'sys.jobs: job "%" cannot be deleted here, its cursor would be lost', old.job_name
                USING ERRCODE = 'check_violation', HINT = 'Use DROP JOB through horae sql, or DELETE FROM sys.cb_schedules.';
        END IF;
    ELSIF tg_argv[0] = 'cursor' THEN
        IF new.state = old.state AND new.updated_at <> old.updated_at AND EXISTS (
            SELECT 1 FROM sys.job_versions
            WHERE job_uuid = new.job_uuid AND version = new.version AND created_at = new.updated_at)
        THEN
            RETURN NULL;
        END IF;
        RAISE EXCEPTION 'sys.jobs: state and next_run_time of job "%" cannot be set here, its cursor would not follow', old.job_name
            USING ERRCODE = 'check_violation', HINT = 'Use UPDATE sys.cb_schedules SET enabled or next_run_at, or ALTER JOB through horae sql.';
    ELSIF new.version = old.version OR NOT EXISTS (
        SELECT 1 FROM sys.job_versions WHERE job_uuid = new.job_uuid AND version = new.version)
    THEN
        RAISE EXCEPTION 'sys.jobs: the definition of job "%" cannot be changed here, it needs a version of its own', old.job_name
            USING ERRCODE = 'check_violation', HINT = 'Use ALTER JOB through horae sql, or UPDATE sys.cb_schedules SET cron_spec.';
    END IF;
    RETURN NULL;
END
$function$;

CREATE TRIGGER jobs_removal AFTER DELETE ON sys.jobs
FOR EACH ROW EXECUTE FUNCTION sys.jobs_guard();

CREATE TRIGGER jobs_definition AFTER UPDATE OF
    description, job_class, job_type, job_sql, procedure_uuid, external_command, schedule_kind, cron_expression,
    interval_seconds, starts_at, ends_at, schedule_tz, on_completion, partition_strategy, partition_shard_uuid,
    partition_expression, max_retries, retry_backoff_seconds, timeout_seconds, run_as_role_uuid, namespace, tags,
    schedule_text, job_name, job_uuid, version
ON sys.jobs
FOR EACH ROW WHEN (
    old.version <> new.version OR (
        old.description, old.job_class, old.job_type, old.job_sql, old.procedure_uuid, old.external_command,
        old.schedule_kind, old.cron_expression, old.interval_seconds, old.starts_at, old.ends_at, old.schedule_tz,
        old.on_completion, old.partition_strategy, old.partition_shard_uuid, old.partition_expression,
        old.max_retries, old.retry_backoff_seconds, old.timeout_seconds, old.run_as_role_uuid, old.namespace,
        old.tags, old.schedule_text, old.job_name, old.job_uuid
    ) IS DISTINCT FROM (
        new.description, new.job_class, new.job_type, new.job_sql, new.procedure_uuid, new.external_command,
        new.schedule_kind, new.cron_expression, new.interval_seconds, new.starts_at, new.ends_at, new.schedule_tz,
        new.on_completion, new.partition_strategy, new.partition_shard_uuid, new.partition_expression,
        new.max_retries, new.retry_backoff_seconds, new.timeout_seconds, new.run_as_role_uuid, new.namespace,
        new.tags, new.schedule_text, new.job_name, new.job_uuid
    )
) EXECUTE FUNCTION sys.jobs_guard('definition');

-- A release before this one has no revision. What it may write all the same: a pause or a resumption, which leave the alarm
-- as it is; the state of a job without a time to come; a next run that was moved, that waits for the end of a pause, or
-- that a version made in the same moment brings (jobs_guard looks for that).
CREATE TRIGGER jobs_cursor AFTER UPDATE OF state, next_run_time ON sys.jobs
FOR EACH ROW WHEN (
    old.planned_until = new.planned_until AND old.revision = new.revision
    AND old.wake_at IS NOT DISTINCT FROM new.wake_at AND (
        (
            old.state <> new.state AND old.next_run_time IS NOT DISTINCT FROM new.next_run_time
            AND new.schedule_kind <> 'NONE' AND (
                new.next_run_time IS NOT NULL OR new.wake_at IS NOT NULL
                OR (old.updated_at = new.updated_at AND (new.schedule_kind <> 'AT' OR new.state <> 'DISABLED'))
                OR (old.state = 'DISABLED' AND new.schedule_kind IN ('CRON', 'EVERY') AND new.ends_at IS NULL)
                OR (old.state = 'DISABLED' AND new.schedule_kind = 'AT' AND new.starts_at > new.updated_at)
            )
        ) OR (
            old.state <> new.state AND old.next_run_time IS DISTINCT FROM new.next_run_time AND NOT (
                old.updated_at <> new.updated_at AND new.wake_at IS NOT NULL AND (
                    (
                        old.state = 'ENABLED' AND new.state = 'PAUSED'
                        AND (new.next_run_time IS NULL OR new.paused_until IS NOT NULL)
                    )
                    OR (
                        old.state = 'PAUSED' AND new.state = 'ENABLED'
                        AND coalesce(new.next_run_time >= new.wake_at, false)
                    )
                )
            )
        ) OR (
            old.state = new.state AND old.next_run_time IS DISTINCT FROM new.next_run_time
            AND (
                old.moved_to IS NOT DISTINCT FROM new.moved_to OR (new.moved_to IS NULL) <> (new.moved_slot IS NULL)
            )
            AND (old.paused_until IS NOT DISTINCT FROM new.paused_until OR new.state <> 'PAUSED')
        )
    )
) EXECUTE FUNCTION sys.jobs_guard('cursor');

CREATE TRIGGER jobs_emptying BEFORE TRUNCATE ON sys.jobs
FOR EACH STATEMENT EXECUTE FUNCTION sys.jobs_guard();
