-- Ends of runs that hooks are to be called with. A hook is a function of a program, known by the name that every node of
-- that program gives it; it may ask for the runs of one job or of all. The transaction that ends a run writes a notice
-- for each hook that asks for it, whatever ends the run, and one live node that has the hook delivers it.
-- min_reader: 1

CREATE TABLE sys.hooks (
    hook_id  TEXT PRIMARY KEY,
    job_uuid TEXT,              -- NULL: every job
    job_name TEXT,
    states   TEXT,              -- with a comma around each: ',FAILED,MISSED,'; NULL: all, but for slots that a pause skipped
    seen_at  INTEGER NOT NULL   -- when a node last said that it has it
) WITHOUT ROWID;

-- What a notice says of its run is there for a run that is deleted before the hook was called.
CREATE TABLE sys.outbox (
    notice_no      INTEGER PRIMARY KEY AUTOINCREMENT,
    hook_id        TEXT NOT NULL,
    job_run_uuid   TEXT NOT NULL,
    job_uuid       TEXT NOT NULL,
    version        INTEGER NOT NULL,
    state          TEXT NOT NULL,
    reason         TEXT,
    origin         TEXT NOT NULL,
    scheduled_time INTEGER NOT NULL,
    chosen_time    INTEGER NOT NULL,
    started_at     INTEGER,
    completed_at   INTEGER NOT NULL,
    is_recovery    INTEGER NOT NULL,
    covers_from    INTEGER,
    covers_to      INTEGER,
    covers_count   INTEGER NOT NULL,
    replay_of      TEXT,
    cancelled_by   TEXT,
    claimed_by     TEXT         -- the incarnation that delivers it
);
CREATE INDEX sys.outbox_hook ON outbox (hook_id, notice_no);
CREATE INDEX sys.outbox_age ON outbox (completed_at);

CREATE TRIGGER sys.job_runs_ended AFTER UPDATE OF completed_at ON job_runs
WHEN old.completed_at IS NULL AND new.completed_at IS NOT NULL
BEGIN
    INSERT INTO outbox (
        hook_id, job_run_uuid, job_uuid, version, state, reason, origin, scheduled_time, chosen_time, started_at,
        completed_at, is_recovery, covers_from, covers_to, covers_count, replay_of, cancelled_by)
    SELECT h.hook_id, new.job_run_uuid, new.job_uuid, new.version, new.state, new.reason, new.origin,
        new.scheduled_time, new.chosen_time, new.started_at, new.completed_at, new.is_recovery, new.covers_from,
        new.covers_to, new.covers_count, new.replay_of, new.cancelled_by
    FROM hooks h
    WHERE (h.job_uuid IS NULL OR h.job_uuid = new.job_uuid)
        AND CASE WHEN h.states IS NULL THEN NOT (new.state = 'SKIPPED' AND new.reason IS 'paused')
            ELSE instr(h.states, ',' || new.state || ',') > 0 END
    ORDER BY h.hook_id;
END;
CREATE TRIGGER sys.job_runs_born_ended AFTER INSERT ON job_runs
WHEN new.completed_at IS NOT NULL
BEGIN
    INSERT INTO outbox (
        hook_id, job_run_uuid, job_uuid, version, state, reason, origin, scheduled_time, chosen_time, started_at,
        completed_at, is_recovery, covers_from, covers_to, covers_count, replay_of, cancelled_by)
    SELECT h.hook_id, new.job_run_uuid, new.job_uuid, new.version, new.state, new.reason, new.origin,
        new.scheduled_time, new.chosen_time, new.started_at, new.completed_at, new.is_recovery, new.covers_from,
        new.covers_to, new.covers_count, new.replay_of, new.cancelled_by
    FROM hooks h
    WHERE (h.job_uuid IS NULL OR h.job_uuid = new.job_uuid)
        AND CASE WHEN h.states IS NULL THEN NOT (new.state = 'SKIPPED' AND new.reason IS 'paused')
            ELSE instr(h.states, ',' || new.state || ',') > 0 END
    ORDER BY h.hook_id;
END;
