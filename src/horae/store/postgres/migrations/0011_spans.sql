-- Rows that stand for many slots say where they begin as all others do: covers_from is no slot of theirs, covers_to is their last. Slots
-- are whole seconds. A release before this one writes the first slot itself, and reads both.
-- min_reader: 1

UPDATE sys.job_runs SET covers_from = covers_from - 1000
WHERE covers_from IS NOT NULL AND covers_count > 1 AND (state = 'MISSED' OR state = 'SKIPPED');
