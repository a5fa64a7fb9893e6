-- The rows of pauses that go on.

-- name: newest_paused
SELECT r.scheduled_time, coalesce(r.covers_to, r.scheduled_time), r.covers_from, r.covers_count
FROM sys.pause_rows p
CROSS JOIN sys.job_runs r ON r.run_no = p.run_no
WHERE p.job_uuid = :job;

-- name: name_paused(job_uuid, key)
-- The slot may have another run already, which is no row of the pause.
INSERT INTO sys.pause_rows (job_uuid, run_no)
SELECT r.job_uuid, r.run_no FROM sys.job_runs r
WHERE r.job_uuid = :job_uuid AND r.idempotency_key = :key AND r.state = 'SKIPPED' AND r.reason = 'paused'
ON CONFLICT (job_uuid) DO UPDATE SET run_no = excluded.run_no;

-- name: grow_spans(job_uuid, covers_to, covers_count, now)
-- A span is as old as its last slot, so that retention leaves it while it grows.
UPDATE sys.job_runs SET covers_to = :covers_to, covers_count = :covers_count, completed_at = :now
WHERE run_no = (SELECT p.run_no FROM sys.pause_rows p WHERE p.job_uuid = :job_uuid);

-- name: end_pause
DELETE FROM sys.pause_rows WHERE job_uuid = :job RETURNING run_no;

-- name: closed_spans
SELECT run_no, job_run_uuid, state, covers_from, covers_to, covers_count
FROM sys.job_runs
WHERE run_no IN (SELECT value FROM json_each(:runs))
ORDER BY run_no;
