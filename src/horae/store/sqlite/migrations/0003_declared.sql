-- What retention would otherwise forget of a job: when it was last tried, when it last succeeded. Written when the runs
-- that say so are deleted; until then the runs say it.
-- min_reader: 1

ALTER TABLE sys.jobs ADD COLUMN last_attempt_at INTEGER;
ALTER TABLE sys.jobs ADD COLUMN last_success_at INTEGER;
