-- Changes that take effect gracefully: which earlier versions still speak for slots, and up to which moment, as a JSON
-- list of pairs [version, milliseconds]. A release before this one takes every change as immediate.
-- min_reader: 1

ALTER TABLE sys.job_versions ADD COLUMN former text;
