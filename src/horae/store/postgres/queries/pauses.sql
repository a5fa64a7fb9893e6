-- The rows of pauses that go on.

-- name: newest_paused
SELECT r.scheduled_time, coalesce(r.covers_to, r.scheduled_time), r.covers_from, r.covers_count
FROM sys.pause_rows p
JOIN sys.job_runs r ON r.run_no = p.run_no
WHERE p.job_uuid = :job;

-- name: name_paused(job_uuid uuid, key text)
-- The slot may have another run already, which is no row of the pause.
INSERT INTO sys.pause_rows (job_uuid, run_no)
SELECT r.job_uuid, r.run_no FROM :rows
JOIN sys.job_runs r ON r.job_uuid = given.job_uuid AND r.idempotency_key = given.key
WHERE r.state = 'SKIPPED' AND r.reason = 'paused'
ON CONFLICT (job_uuid) DO UPDATE SET run_no = excluded.run_no;

-- name: grow_spans(job_uuid uuid, covers_to bigint, covers_count bigint, now bigint)
-- A span is as old as its last slot, so that retention leaves it while it grows.
UPDATE sys.job_runs SET covers_to = given.covers_to, covers_count = given.covers_count, completed_at = given.now
FROM :rows
JOIN sys.pause_rows p ON p.job_uuid = given.job_uuid
WHERE job_runs.run_no = p.run_no;

-- name: end_pause
DELETE FROM sys.pause_rows WHERE job_uuid = :job RETURNING run_no;

-- name: closed_spans
SELECT run_no, job_run_uuid, state, covers_from, covers_to, covers_count
FROM sys.job_runs
WHERE run_no = ANY(:runs)
ORDER BY run_no;
