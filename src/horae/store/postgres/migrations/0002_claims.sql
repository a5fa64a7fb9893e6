-- What a run of this version needs to start, where one statement can start it: [its only task's name, its time-out in ms].
-- Versions written before have none, and start the longer way.
-- min_reader: 1

ALTER TABLE sys.job_versions ADD COLUMN plain_start JSONB;

-- From here on each number taken stands for itself and the 63 after it. Whoever still takes one at a time leaves holes.
ALTER SEQUENCE sys.run_numbers INCREMENT BY 64;
