"""What SHOW CREATE JOB says, said to an empty catalog, defines the same jobs."""

from __future__ import annotations

from pathlib import Path

from tests.sql.stage import Stage, staged
from tests.store.catalogs import sqlite_place

from horae.core.job.definition import JobSpec

PEOPLE = """
    CREATE USER ann; CREATE USER "Bob's"; CREATE ROLE crew; GRANT CREATE JOB, EXECUTE EXTERNAL JOB TO ann;
    GRANT crew TO ann
"""
JOBS = """
CREATE JOB plain SCHEDULE = NONE AS 'SELECT 1';
CREATE JOB cron SCHEDULE = CRON '*/5 8-17 * * MON-FRI' STARTS '2030-02-01' ENDS '2030-03-01 12:00'
  TIMEZONE = 'Europe/Brussels' DST = SHIFT, BOTH AS 'SELECT ''it''''s''';
CREATE JOB posix SCHEDULE = CRON '0 1 * * *' DIALECT POSIX AS 'SELECT 1';
CREATE JOB once SCHEDULE = AT '2040-01-15 10:00' TIMEZONE = 'Asia/Tokyo' ON COMPLETION DROP AS 'SELECT 1';
CREATE JOB kept SCHEDULE = AT '2040-01-15 10:00' ON COMPLETION PRESERVE AS 'SELECT 1';
CREATE JOB every SCHEDULE = EVERY 90 minutes AS 'SELECT 1';
CREATE JOB from SCHEDULE = EVERY 1h STARTS '2030-01-01 00:00' ENDS '2031-01-01 00:00' AS 'SELECT 1';
CREATE JOB iso SCHEDULE = ISO8601 'R5/2030-01-01T00:00:00Z/P1M' AS 'SELECT 1';
CREATE JOB union SCHEDULE = CRON '0 9 * * MON-FRI' OR AT '2040-12-31 18:00' THEN DROP AS 'SELECT 1';
CREATE JOB policies SCHEDULE = CRON '@daily' MAX_RETRIES = 7 RETRY_BACKOFF = 5s RETRY_FACTOR = 3 MAX_BACKOFF = 10m
  JITTER = 0.5 TIMEOUT = NONE TASK_TIMEOUT = 5m MISFIRE_GRACE = 2h DEADLINE = 1d CANCEL_GRACE = 1s MODE = PARALLEL
  FAILURE = CONTINUE DELIVERY = AT_MOST_ONCE ISOLATION = PROCESS MAX_CONCURRENT = 2 MAX_LOST = NONE
  OVERLAP = QUEUE(5) RECOVERY = BOUNDED(MAX_OCCURRENCES = 3, MAX_AGE = 2d) AS 'SELECT 1';
CREATE JOB window SCHEDULE = CRON '0 9 * * *' AS 'SELECT 1'
  WINDOW = AROUND 2h DISTRIBUTION normal(mu = mid) SEED DAILY SALT 'x''y' ONLY (hours = '8-10', dow = '1-5')
  AVOID (dates = '2030-12-24..2030-12-31');
CREATE JOB command SCHEDULE = CRON '@daily' EXEC '/usr/bin/backup --all' WORKING DIRECTORY '/var/backup'
  ENVIRONMENT (LEVEL = 'full') USER backup UMASK 027 SECRETS (s3-key AS S3_KEY, tls IN FILE);
CREATE JOB shell SCHEDULE = NONE EXEC 'a | b' SHELL STDOUT 'out.log';
CREATE JOB procedure SCHEDULE = NONE CALL shop.refresh('all', -7, 1.5, TRUE, NULL);
CREATE JOB elsewhere SCHEDULE = NONE AS 'VACUUM' ON CONNECTION warehouse;
CREATE JOB python SCHEDULE = EVERY 10m PYTHON shop.remind PAYLOAD = '{"limit": [1, null, "x"]}' TAGS = (a, 'b c');
CREATE JOB tasks SCHEDULE = CRON '0 1 * * *' MODE = SEQUENTIAL RETRY = NONE TASKS (
  extract AS 'SELECT 1' MAX_RETRIES = 5, transform CALL transform(), "tidy up" EXEC '/bin/true' FAILURE = CONTINUE
  TASK_TIMEOUT = 5m, other PYTHON other RETRY = NONE);
CREATE JOB placed CLASS = QUORUM_REQUIRED PARTITION BY SHARD_SET (
  '6ba7b810-9dad-11d1-80b4-00c04fd430c8', '6ba7b811-9dad-11d1-80b4-00c04fd430c8') SCHEDULE = NONE AS 'SELECT 1';
CREATE JOB dynamic CLASS = LEADER_ONLY PARTITION BY DYNAMIC (pick(1, 'x')) SCHEDULE = NONE AS 'SELECT 1';
CREATE JOB "It's; -- ""odd"" one" DESCRIPTION = 'first
second' SCHEDULE = NONE AS $$SELECT 'x'$$;
CREATE JOB after DEPENDS ON plain, cron, "It's; -- ""odd"" one" SCHEDULE = CRON '0 3 * * *' AS 'SELECT 1';
CREATE JOB anns OWNER = ann RUN AS crew SCHEDULE = NONE AS 'SELECT 1';
CREATE JOB bobs OWNER = "Bob's" SCHEDULE = NONE DISABLED AS 'SELECT 1';
CREATE JOB paused NAMESPACE = billing SCHEDULE = NONE PAUSED AS 'SELECT 1'
"""


def specs(stage: Stage) -> dict[str, tuple[JobSpec, str, str]]:
    return {job.name: (job.definition.spec, str(job.state), job.owner) for job in stage.app.sync.jobs()}


def test_a_catalog_said_again_is_the_same_catalog(stage: Stage, tmp_path: Path) -> None:
    stage.sql(PEOPLE)
    stage.sql(JOBS)
    stage.sql("ALTER JOB policies SET OVERLAP = REPLACE SET WINDOW = AFTER 5m; ALTER JOB python DISABLE")
    expected = specs(stage)
    assert len(expected) == JOBS.count("CREATE JOB")
    said = {name: stage.sql("SHOW CREATE JOB " + '"' + name.replace('"', '""') + '"')[0][1] for name in expected}
    later = "after"
    texts = [text for name, text in said.items() if name != later] + [said[later]]
    (tmp_path / "other").mkdir()
    with staged(sqlite_place(tmp_path / "other"), tmp_path) as empty:
        empty.sql(PEOPLE)
        empty.sql(";\n".join(texts))
        assert specs(empty) == expected
        again = {name: empty.sql("SHOW CREATE JOB " + '"' + name.replace('"', '""') + '"')[0][1] for name in expected}
        assert again == said


def test_said_to_the_same_catalog_it_changes_nothing(stage: Stage) -> None:
    stage.sql(PEOPLE)
    stage.sql(JOBS)
    for name in specs(stage):
        text = stage.sql("SHOW CREATE JOB " + '"' + name.replace('"', '""') + '"')[0][1]
        assert stage.sql(text.replace("CREATE JOB", "CREATE OR ALTER JOB", 1)).message == f"unchanged job {name}"
