-- Threads that work although their attempt has ended: for its job, such a run counts as under way until the thread ends or
-- its node dies. A release before this one does not mind them.
-- min_reader: 1

CREATE TABLE sys.run_threads (
    run_no     BIGINT NOT NULL,
    position   BIGINT NOT NULL,
    attempt_no BIGINT NOT NULL,
    job_uuid   UUID NOT NULL,
    node_uuid  UUID NOT NULL,
    since      BIGINT NOT NULL,
    PRIMARY KEY (run_no, position, attempt_no)
);
