"""`horae export`: what it prints reads back to the same, and files are written whole or not at all."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from tests.cli.inside import inside
from tests.cli.shell import horae
from tests.web.serving import serving


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'horae.db'}"
    inside("migrate", "--store", url)
    text = (
        "CREATE JOB nightly SCHEDULE = CRON '0 2 * * *' TIMEZONE = 'Europe/Berlin' TAGS = (etl) AS 'SELECT 1';"
        "CREATE JOB poll SCHEDULE = EVERY 90s DEPENDS ON nightly DISABLED EXEC '/bin/true'"
    )
    assert inside("sql", text, "--store", url).code == 0
    return url


def test_an_export_applied_to_the_same_catalog_changes_nothing_and_makes_another_the_same(
    store: str, tmp_path: Path
) -> None:
    exported = horae("export", "--store", store)
    assert exported.code == 0, exported.errors
    file = tmp_path / "jobs.toml"
    file.write_text(exported.out)
    assert inside("plan", str(file), "--store", store, "--exit-code").code == 0
    other = f"sqlite:///{tmp_path / 'other.db'}"
    inside("migrate", "--store", other)
    assert inside("apply", str(file), "--yes", "--store", other).code == 0
    assert inside("export", "--store", other).out == exported.out
    shown = json.loads(inside("job", "show", "poll", "--store", other, "--json").out)
    assert shown["state"] == "DISABLED"


def test_a_file_is_written_whole_and_one_that_is_there_stays(store: str, tmp_path: Path) -> None:
    target = tmp_path / "out" / "jobs.toml"
    missing = inside("export", "-o", str(target), "--store", store)
    assert (missing.code, "Cannot write" in missing.errors) == (2, True)
    target.parent.mkdir()
    done = inside("export", "-o", str(target), "--store", store)
    assert (done.code, done.out) == (0, f"2 jobs in {target}\n")
    assert target.read_text() == inside("export", "--store", store).out
    as_others = tmp_path / "other"
    as_others.touch()
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(as_others.stat().st_mode)
    target.write_text("mine")
    refused = inside("export", "-o", str(target), "--store", store)
    assert (refused.code, target.read_text()) == (2, "mine")
    assert "exists already" in refused.errors
    assert inside("export", "nightly", "-o", str(target), "--force", "--store", store).code == 0
    assert "[jobs.nightly]" in target.read_text()
    assert "[jobs.poll]" not in target.read_text()
    assert [each.name for each in target.parent.iterdir()] == ["jobs.toml"]
    assert inside("export", "-o", str(tmp_path), "--store", store).code == 2


def test_formats_tags_and_what_is_left_out(store: str, tmp_path: Path) -> None:
    tagged = json.loads(inside("export", "--tag", "etl", "--format", "json", "--store", store).out)
    assert list(tagged["jobs"]) == ["nightly"]
    lines = inside("export", "--format", "krontab", "-o", str(tmp_path / "x.kron"), "--store", store)
    assert (lines.code, lines.out) == (1, "")
    assert 'Nothing of this can be said as krontab. Job "nightly"' in lines.errors
    assert not (tmp_path / "x.kron").exists()
    told = json.loads(inside("export", "poll", "--store", store, "--json").out)
    assert [each["name"] for each in told["left_out"]] == ["nightly"]
    assert 'horae: left out nightly: it was not asked for, and "poll" depends on it' in (
        inside("export", "poll", "--store", store).errors
    )
    missing = inside("export", "nope", "--store", store)
    assert (missing.code, 'There is no job "nope"' in missing.errors) == (1, True)
    assert inside("export", "--format", "yaml", "--store", store).code == 2


def test_a_server_is_exported_in_the_same_words(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'served.db'}"
    inside("migrate", "--store", url)
    inside("sql", "CREATE JOB nightly SCHEDULE = CRON '0 2 * * *' AS 'SELECT 1'", "--store", url)
    here = inside("export", "--format", "sql", "--store", url).out
    with serving(url, define=lambda app: None) as served:
        assert inside("export", "--format", "sql", "--server", served.url).out == here
        assert inside("export", "nightly", "--format", "sql", "--server", served.url).out == here
