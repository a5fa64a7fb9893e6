-- What a run of this version needs to start, where one statement can start it: [its only task's name, its time-out in ms].
-- Versions written before have none, and start the longer way.
-- min_reader: 1

ALTER TABLE sys.job_versions ADD COLUMN plain_start TEXT;
