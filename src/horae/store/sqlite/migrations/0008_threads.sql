-- Threads that work although their attempt has ended: for its job, such a run counts as under way until the thread ends or
-- its node dies. A release before this one does not mind them.
-- min_reader: 1

CREATE TABLE sys.run_threads (
    run_no     INTEGER NOT NULL,
    position   INTEGER NOT NULL,
    attempt_no INTEGER NOT NULL,
    job_uuid   TEXT NOT NULL,
    node_uuid  TEXT NOT NULL,
    since      INTEGER NOT NULL,
    PRIMARY KEY (run_no, position, attempt_no)
) WITHOUT ROWID;
