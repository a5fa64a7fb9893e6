-- What a report tells of a failure and of a replay: the traceback of each attempt that failed (for a program, the last
-- lines it printed), and why a replay was asked for, which stood in the place of the outcome's reason before.
-- min_reader: 1

ALTER TABLE sys.task_attempts ADD COLUMN traceback TEXT;
ALTER TABLE sys.job_runs ADD COLUMN replay_reason TEXT;

-- Of replays in these states nothing but the request can have written a reason. The second condition is the index's own.
UPDATE sys.job_runs SET replay_reason = reason, reason = NULL
WHERE origin = 'REPLAY' AND origin <> 'SCHEDULE' AND state IN ('PENDING', 'QUEUED', 'RUNNING', 'COMPLETED');
