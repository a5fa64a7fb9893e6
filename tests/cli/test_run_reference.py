"""A run by any beginning of its id that is its own, on a store and on a server; of those that one may see."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.inside import inside
from tests.cli.shell import Done
from tests.web.serving import Served

Ask = Callable[..., Done]


@pytest.fixture(params=["store", "server"])
def ask(request: pytest.FixtureRequest, tmp_path: Path) -> Ask:
    if request.param == "store":
        where = ("--store", f"sqlite:///{tmp_path / 'horae.db'}")
        assert inside("migrate", *where).code == 0
    else:
        server: Served = request.getfixturevalue("server")
        where = ("--server", server.url)
    return lambda *words: inside(*words, *where)


def triggered(ask: Ask, job: str, count: int) -> list[str]:
    """Runs of a job that nobody runs, by their ids."""
    assert ask("sql", f"CREATE OR ALTER JOB {job} SCHEDULE = NONE OVERLAP = ALLOW AS 'SELECT 1'").code == 0
    return [json.loads(ask("job", "trigger", job, "--key", f"k{n}", "--json").out)["run_id"] for n in range(count)]


def test_any_beginning_that_is_its_own_names_a_run(ask: Ask) -> None:
    (run,) = triggered(ask, "lone", 1)
    for text in (run, run[:12], run[4:9], run[4:5], run[4:].upper(), run[4:].replace("-", "")):
        shown = ask("run", "show", text, "--json")
        assert (shown.code, json.loads(shown.out)["run_id"]) == (0, run), text
    assert ask("run", "output", run[:10]).code == 0
    assert ask("run", "cancel", run[:10]).out == f"{run} is CANCELLED\n"
    assert json.loads(ask("run", "replay", run[:8], "--reason", "again", "--json").out)["replay_of"] == run


def test_a_beginning_of_several_is_told_with_those_that_it_may_mean(ask: Ask) -> None:
    runs = triggered(ask, "many", 17)
    digit = next(each[4] for each in runs if sum(other[4] == each[4] for other in runs) > 1)
    meant = [each for each in runs if each[4] == digit]
    told = ask("run", "show", f"occ_{digit}")
    assert told.code == 2
    assert all(each in told.errors for each in meant)
    assert "Give more of the id." in told.errors
    error = json.loads(ask("run", "show", digit, "--json").errors)["error"]
    assert sorted(error["details"]["candidates"].split()) == sorted(meant)


def test_what_begins_no_run_is_told(ask: Ask) -> None:
    (run,) = triggered(ask, "lone", 1)
    other = "0" if run[4] != "0" else "1"
    assert ask("run", "show", f"occ_{other}").code == 1
    for text in ("occ_", "yesterday", "run_1a", "", " "):
        assert ask("run", "show", text).code == 2, text


def test_who_may_not_see_a_run_does_not_learn_of_it(tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path / 'horae.db'}")

    def ask(*words: str) -> Done:
        return inside(*words, *store)

    assert ask("migrate").code == 0
    assert ask("user", "create", "ann").code == 0
    hidden = triggered(ask, "hidden", 17)
    seen = triggered(ask, "seen", 1)[0]
    assert ask("grant", "VIEW JOB HISTORY", "--on", "JOB", "seen", "--to", "ann").code == 0, "only this job's"
    assert json.loads(ask("run", "show", seen[4:5], "--user", "ann", "--json").out)["run_id"] == seen
    strange = next(each for each in hidden if each[4] != seen[4])
    refused = ask("run", "show", strange[:10], "--user", "ann")
    assert (refused.code, strange in refused.errors) == (1, False)
    assert "No run has an id" in refused.errors
