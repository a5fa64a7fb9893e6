-- What attacks and fault injection found missing. Earlier releases go on reading and writing: they neither read nor write
-- what is new here, but for what triggers write.
-- min_reader: 1

-- Rights: the key that seals of the audit trail are keyed with, wrapped by the master key, and their codes under it.
CREATE TABLE sys.audit_keys (
    key_no     BIGINT PRIMARY KEY CHECK (key_no = 1),
    wrapped    BYTEA NOT NULL,
    key_id     TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
ALTER TABLE sys.audit_seals ADD COLUMN mac TEXT;

-- Shares: what of the catalog each owner of jobs may take, and whose turn it is.
-- The row of the uuid 0 has what nodes are configured with. A limit is NULL where the system's counts, -1 where none does.
CREATE TABLE sys.shares (
    user_uuid     UUID PRIMARY KEY,
    max_jobs      BIGINT,
    max_running   BIGINT,
    max_starts    BIGINT,
    max_storage   BIGINT,
    is_shared     BOOLEAN NOT NULL DEFAULT false, -- runs of this owner are claimed by turns
    is_limited    BOOLEAN NOT NULL DEFAULT false, -- and counted when they start
    served_at     BIGINT NOT NULL DEFAULT 0,      -- when a run of this owner was claimed last
    window_at     BIGINT NOT NULL DEFAULT 0,      -- when the minute began in which starts are counted
    window_starts BIGINT NOT NULL DEFAULT 0,
    stored_bytes  BIGINT,
    measured_at   BIGINT
);
CREATE INDEX shares_shared ON sys.shares (user_uuid) WHERE is_shared;

-- The owner whose share a run that waits is claimed from; NULL where runs are claimed by their age alone.
ALTER TABLE sys.job_runs ADD COLUMN share UUID;
CREATE INDEX job_runs_share ON sys.job_runs (share, not_before, run_no) WHERE share IS NOT NULL AND not_before IS NOT NULL;
-- Jobs of `local` are not in it: a catalog that has no others pays nothing for it.
CREATE INDEX jobs_owner ON sys.jobs (created_by_user_uuid)
    WHERE created_by_user_uuid <> 'd69e9d85-8741-5f42-ab50-f4afa0f8cbf6';

-- Answers that are kept for those who ask again: whose they are, so that one user's take only so much room.
ALTER TABLE sys.kept_answers ADD COLUMN user_uuid UUID;
CREATE INDEX kept_answers_user ON sys.kept_answers (user_uuid, begun_at) WHERE user_uuid IS NOT NULL;

-- A row for each change of rights that the audit trail has no digest of yet, whoever made it. No row of it is changed, so
-- that nobody waits for anybody.
CREATE TABLE sys.rights_marks (
    mark_no BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY
);
INSERT INTO sys.rights_marks DEFAULT VALUES;
CREATE FUNCTION sys.mark_rights() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
    INSERT INTO sys.rights_marks DEFAULT VALUES;
    RETURN NULL;
END;
$function$;
CREATE TRIGGER users_mark AFTER INSERT OR UPDATE OR DELETE ON sys.users
FOR EACH ROW EXECUTE FUNCTION sys.mark_rights();
CREATE TRIGGER roles_mark AFTER INSERT OR UPDATE OR DELETE ON sys.roles
FOR EACH ROW EXECUTE FUNCTION sys.mark_rights();
CREATE TRIGGER role_members_mark AFTER INSERT OR UPDATE OR DELETE ON sys.role_members
FOR EACH ROW EXECUTE FUNCTION sys.mark_rights();
CREATE TRIGGER grants_mark AFTER INSERT OR UPDATE OR DELETE ON sys.grants
FOR EACH ROW EXECUTE FUNCTION sys.mark_rights();

-- Old passwords that users may still try, for those who tried some.
CREATE TABLE sys.password_tries (
    user_uuid UUID PRIMARY KEY REFERENCES sys.users (user_uuid) ON DELETE CASCADE,
    tries     DOUBLE PRECISION NOT NULL,
    tried_at  BIGINT NOT NULL
);

-- Doors: a catalog that ever had a password or a token stays closed to those who show none, also when the last of them is
-- gone: the row is there. Triggers write it, so that earlier releases close the catalog too.
CREATE TABLE sys.closed (
    is_closed BOOLEAN PRIMARY KEY CHECK (is_closed)
);
INSERT INTO sys.closed (is_closed)
SELECT true WHERE EXISTS (SELECT 1 FROM sys.tokens) OR EXISTS (SELECT 1 FROM sys.users WHERE password_hash IS NOT NULL)
    OR EXISTS (SELECT 1 FROM sys.audit WHERE event IN ('TOKEN_CREATED', 'LOGIN'));
-- Whoever opens the store is `local`: a password of that name would be an administrator's without a person behind it.
UPDATE sys.users SET password_hash = NULL WHERE user_name = 'local';
-- A row that is there is updated, not left alone, so that it is locked: whoever opens the catalog at that moment waits for
-- the credential, and then sees it.
CREATE FUNCTION sys.close_catalog() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
    INSERT INTO sys.closed (is_closed) VALUES (true) ON CONFLICT (is_closed) DO UPDATE SET is_closed = true;
    RETURN NULL;
END;
$function$;
CREATE TRIGGER tokens_close AFTER INSERT ON sys.tokens
FOR EACH STATEMENT EXECUTE FUNCTION sys.close_catalog();
CREATE TRIGGER passwords_close AFTER INSERT OR UPDATE OF password_hash ON sys.users
FOR EACH ROW WHEN (NEW.password_hash IS NOT NULL) EXECUTE FUNCTION sys.close_catalog();

-- Locks: who writes a row here goes first, until its transaction ends. Anybody may take an advisory lock and keep it; a
-- row is out of reach for job text, which may at most read it.
CREATE TABLE sys.locks (
    lock_name TEXT PRIMARY KEY
);
-- For those who write through cb_schedules with rights on that alone. The row is gone at once, and nobody else comes past
-- before that is committed.
CREATE FUNCTION sys.lock_schedule(name text) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
    INSERT INTO sys.locks AS l (lock_name) VALUES ('schedule ' || name)
    ON CONFLICT (lock_name) DO UPDATE SET lock_name = excluded.lock_name;
    DELETE FROM sys.locks WHERE lock_name = 'schedule ' || name;
$function$;
CREATE OR REPLACE FUNCTION sys.cb_schedules_insert() RETURNS trigger LANGUAGE plpgsql AS $function$
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
    PERFORM sys.lock_schedule(new.name);
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
