-- Ends of runs that hooks are to be called with. A hook is a function of a program, known by the name that every node of
-- that program gives it; it may ask for the runs of one job or of all. The transaction that ends a run writes a notice
-- for each hook that asks for it, whatever ends the run, and one live node that has the hook delivers it.
-- min_reader: 1

CREATE TABLE sys.hooks (
    hook_id  TEXT COLLATE "C" PRIMARY KEY,
    job_uuid UUID,              -- NULL: every job
    job_name TEXT,
    states   TEXT,              -- with a comma around each: ',FAILED,MISSED,'; NULL: all, but for slots that a pause skipped
    seen_at  BIGINT NOT NULL    -- when a node last said that it has it
);

-- What a notice says of its run is there for a run that is deleted before the hook was called.
CREATE TABLE sys.outbox (
    notice_no      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hook_id        TEXT COLLATE "C" NOT NULL,
    job_run_uuid   UUID NOT NULL,
    job_uuid       UUID NOT NULL,
    version        BIGINT NOT NULL,
    state          TEXT NOT NULL,
    reason         TEXT,
    origin         TEXT NOT NULL,
    scheduled_time BIGINT NOT NULL,
    chosen_time    BIGINT NOT NULL,
    started_at     BIGINT,
    completed_at   BIGINT NOT NULL,
    is_recovery    BOOLEAN NOT NULL,
    covers_from    BIGINT,
    covers_to      BIGINT,
    covers_count   BIGINT NOT NULL,
    replay_of      TEXT,
    cancelled_by   TEXT,
    claimed_by     UUID         -- the incarnation that delivers it
);
CREATE INDEX outbox_hook ON sys.outbox (hook_id, notice_no);
CREATE INDEX outbox_age ON sys.outbox (completed_at);

-- For each statement, not for each row: a catalog without hooks pays for one look at an empty table.
CREATE FUNCTION sys.announce_ends() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM sys.hooks) THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        INSERT INTO sys.outbox (
            hook_id, job_run_uuid, job_uuid, version, state, reason, origin, scheduled_time, chosen_time, started_at,
            completed_at, is_recovery, covers_from, covers_to, covers_count, replay_of, cancelled_by)
        SELECT h.hook_id, r.job_run_uuid, r.job_uuid, r.version, r.state, r.reason, r.origin, r.scheduled_time,
            r.chosen_time, r.started_at, r.completed_at, r.is_recovery, r.covers_from, r.covers_to, r.covers_count,
            r.replay_of, r.cancelled_by
        FROM runs_after r
        JOIN runs_before b ON b.job_run_uuid = r.job_run_uuid
        JOIN sys.hooks h ON h.job_uuid IS NULL OR h.job_uuid = r.job_uuid
        WHERE r.completed_at IS NOT NULL AND b.completed_at IS NULL
            AND CASE WHEN h.states IS NULL THEN NOT (r.state = 'SKIPPED' AND r.reason IS NOT DISTINCT FROM 'paused')
                ELSE strpos(h.states, ',' || r.state || ',') > 0 END
        ORDER BY r.run_no, h.hook_id;
    ELSE
        INSERT INTO sys.outbox (
            hook_id, job_run_uuid, job_uuid, version, state, reason, origin, scheduled_time, chosen_time, started_at,
            completed_at, is_recovery, covers_from, covers_to, covers_count, replay_of, cancelled_by)
        SELECT h.hook_id, r.job_run_uuid, r.job_uuid, r.version, r.state, r.reason, r.origin, r.scheduled_time,
            r.chosen_time, r.started_at, r.completed_at, r.is_recovery, r.covers_from, r.covers_to, r.covers_count,
            r.replay_of, r.cancelled_by
        FROM runs_after r
        JOIN sys.hooks h ON h.job_uuid IS NULL OR h.job_uuid = r.job_uuid
        WHERE r.completed_at IS NOT NULL
            AND CASE WHEN h.states IS NULL THEN NOT (r.state = 'SKIPPED' AND r.reason IS NOT DISTINCT FROM 'paused')
                ELSE strpos(h.states, ',' || r.state || ',') > 0 END
        ORDER BY r.run_no, h.hook_id;
    END IF;
    RETURN NULL;
END
$function$;
CREATE TRIGGER job_runs_ended AFTER UPDATE ON sys.job_runs
    REFERENCING OLD TABLE AS runs_before NEW TABLE AS runs_after
    FOR EACH STATEMENT EXECUTE FUNCTION sys.announce_ends();
CREATE TRIGGER job_runs_born_ended AFTER INSERT ON sys.job_runs
    REFERENCING NEW TABLE AS runs_after
    FOR EACH STATEMENT EXECUTE FUNCTION sys.announce_ends();
