-- Where the slots of a pause are recorded: the newest row of each pause that goes on. From the second slot of a pause that
-- row is a span, which grows until the pause is over. A release before this one writes a row for each slot, as it did.
-- min_reader: 1

CREATE TABLE sys.pause_rows (
    job_uuid TEXT PRIMARY KEY,
    run_no   INTEGER NOT NULL
) WITHOUT ROWID;
