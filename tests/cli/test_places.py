"""The same commands on a store that is opened here and on a running server: the same answers, the same exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from time import time_ns
from typing import Any

import pytest
from tests.cli.inside import inside
from tests.cli.shell import Done
from tests.cli.terminal import Terminal
from tests.web.serving import serving, settings_with_key

JOBS = """
CREATE JOB nightly SCHEDULE = CRON '0 2 * * *' TIMEZONE = 'Europe/Berlin' TAGS = (etl) DESCRIPTION = 'cleans up'
  AS 'SELECT 1';
CREATE JOB idle SCHEDULE = NONE AS 'SELECT 2';
CREATE JOB "odd é/?" SCHEDULE = EVERY 1h ANCHOR '2026-01-01T00:00:00Z' AS 'SELECT 3';
"""
_ID = re.compile(r"(occ_|run_|attempt_)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SECRET = re.compile(r"horae_[\w-]+|[0-9a-f]{64}")


@dataclass(frozen=True)
class Places:
    """A store, and a server over another one, which were given the same jobs."""

    store: str
    server: str

    def here(self, *arguments: str, stdin: str = "") -> Done:
        return inside(*arguments, "--store", self.store, stdin=stdin)

    def there(self, *arguments: str, stdin: str = "") -> Done:
        return inside(*arguments, "--server", self.server, stdin=stdin)


@contextmanager
def both(folder: Path) -> Iterator[Places]:
    """Their clocks stand still at one moment: what follows from the time, such as how long it is until then, is the
    same on both whenever they are asked."""
    settings = settings_with_key(folder)
    moment = time_ns()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("horae.store.sqlite.driver.time_ns", lambda: moment)
        patched.setattr("horae.cli.files.now", lambda: datetime.fromtimestamp(moment / 1e9, UTC))
        patched.chdir(folder)  # where the configuration lies that names the master key
        with serving(
            f"sqlite:///{folder}/there.db", define=lambda app: None, settings=settings, is_running=False
        ) as server:
            found = Places(f"sqlite:///{folder}/here.db", server.url)
            inside("migrate", "--store", found.store)
            for done in (found.here("sql", stdin=JOBS), found.there("sql", stdin=JOBS)):
                assert (done.code, done.errors) == (0, "")
            yield found


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """Where nobody changes anything."""
    with both(tmp_path_factory.mktemp("places")) as found:
        yield found


@pytest.fixture
def own_places(tmp_path: Path) -> Iterator[Places]:
    """One test's own, to change."""
    with both(tmp_path) as found:
        yield found


def masked(text: str) -> Any:
    """What an answer says, without what is another in every catalog: ids and digests."""
    return _SECRET.sub("DIGEST", _ID.sub("ID", text))


LOOKING = (
    ("job", "list"),
    ("job", "list", "--search", "clean", "--sort", "next_run_time", "--descending", "--limit", "1"),
    ("job", "list", "--tag", "etl", "--state", "enabled", "--owner", "local"),
    ("job", "show", "nightly"),
    ("job", "show", "odd é/?"),
    ("job", "show", "nightly", "--toml"),
    ("job", "show", "nightly", "--krontab"),
    ("job", "explain", "nightly", "--at", "2099-01-01T02:00"),
    ("job", "calendar", "nightly", "--year", "2099"),
    ("job", "versions", "idle"),
    ("job", "runs"),
    ("job", "runs", "idle", "--since", "2026-01-01", "--until", "now", "--origin", "trigger", "--state", "active"),
    ("run", "list", "--limit", "2"),
    ("node", "list"),
    ("user", "list"),
    ("role", "list"),
    ("token", "list"),
    ("secret", "list"),
    ("audit", "list", "--event", "job_created", "--limit", "3"),
    ("sql", "SHOW JOBS; SHOW CREATE JOB nightly; SELECT job_name FROM sys.jobs ORDER BY 1"),
    ("sql", "--each", "SHOW JOBS; SHOW JOB RUNS"),
)
CHANGING: tuple[tuple[tuple[str, ...], str], ...] = (
    (("job", "pause", "nightly", "--until", "2099-07-01T00:00", "--note", "moving"), ""),
    (("job", "resume", "nightly"), ""),
    (("job", "disable", "nightly"), ""),
    (("job", "enable", "nightly"), ""),
    (("job", "trigger", "idle", "--key", "k1", "--payload", '{"day": 1}'), ""),
    (("job", "trigger", "idle", "--key", "k1"), ""),
    (("job", "reschedule", "nightly", "2099-01-01T12:00:00+01:00"), ""),
    (("job", "backfill", "nightly", "2026-01-01", "2026-01-02T12:00"), ""),
    (("user", "create", "ann"), ""),
    (("user", "alter", "ann", "--admin"), ""),
    (("role", "create", "ops", "--description", "who operates"), ""),
    (("grant", "CREATE JOB", "--to", "ops"), ""),
    (("grant", "ops", "--to", "ann"), ""),
    (("revoke", "CREATE JOB", "--from", "ops"), ""),
    (("secret", "set", "token"), "s3cr3t-value-42"),
    (("secret", "list"), ""),
    (("secret", "rotate"), ""),
    (("secret", "drop", "token"), ""),
    (("role", "drop", "ops"), ""),
    (("job", "drop", "--yes", "odd é/?", "--keep-history"), ""),
    (("sql", "--each"), "CREATE JOB other SCHEDULE = NONE AS 'SELECT 1'; DROP JOB other"),
    (("user", "drop", "ann"), ""),
)
REFUSED = (
    (("job", "show", "nope"), 1),
    (("job", "pause", "nope", "--until", "now"), 1),
    (("job", "runs", "nope"), 1),
    (("job", "list", "--state", "nonsense"), 2),
    (("job", "pause", "nightly", "--until", "soon"), 2),
    (("job", "trigger", "idle", "--payload", "{day}"), 2),
    (("run", "show", "nonsense"), 2),
    (("run", "show", "occ_00000000-0000-0000-0000-000000000000"), 1),
    (("run", "cancel", "occ_00000000-0000-0000-0000-000000000000"), 1),
    (("user", "drop", "nobody"), 1),
    (("user", "create", "local"), 1),
    (("token", "revoke", "nonsense"), 1),
    (("sql", "SHOW JBOS"), 2),
    (("sql", "DROP JOB nope; SHOW JOBS"), 1),
    (("sql", "--each", "SHOW JOBS; DROP JOB nope"), 1),
    (("sql", " "), 2),
    (("audit", "verify", "--head", "nonsense"), 2),
)


@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_both_answer_the_same(places: Places, words: tuple[str, ...]) -> None:
    here, there = places.here(*words, "--json"), places.there(*words, "--json")
    assert (there.code, masked(there.errors)) == (here.code, masked(here.errors))
    assert masked(there.out) == masked(here.out)
    assert here.code == (1 if "--krontab" in words else 0), here.errors
    here, there = places.here(*words), places.there(*words)
    assert masked(there.out) == masked(here.out), "the same text too"


def test_both_do_the_same(own_places: Places) -> None:
    places = own_places
    for words, stdin in CHANGING:
        here, there = (ask(*words, "--json", stdin=stdin) for ask in (places.here, places.there))
        assert (here.code, there.code) == (0, 0), (words, here.errors, there.errors)
        assert masked(there.out) == masked(here.out), words
        assert "s3cr3t" not in here.out + there.out + here.errors + there.errors
    for words in (("job", "list"), ("job", "show", "nightly"), ("run", "list"), ("user", "list"), ("role", "list")):
        here, there = places.here(*words, "--json"), places.there(*words, "--json")
        assert masked(there.out) == masked(here.out), words


@pytest.mark.parametrize(("words", "code"), REFUSED, ids=lambda each: " ".join(each) if isinstance(each, tuple) else "")
def test_both_refuse_the_same(places: Places, words: tuple[str, ...], code: int) -> None:
    here, there = places.here(*words, "--json"), places.there(*words, "--json")
    assert (here.code, there.code) == (code, code), there.errors
    assert masked(there.out) == masked(here.out)
    told_here, told_there = json.loads(here.errors)["error"], json.loads(there.errors)["error"]
    assert (told_there["code"], told_there["message"]) == (told_here["code"], told_here["message"])
    assert told_there.get("hint") == told_here.get("hint")


def test_a_run_is_shown_cancelled_and_done_again_through_a_server(own_places: Places) -> None:
    places = own_places
    assert places.there("sql", "CREATE JOB lone SCHEDULE = NONE AS 'SELECT 1'").code == 0
    run = json.loads(places.there("job", "trigger", "lone", "--json").out)["run_id"]
    assert json.loads(places.there("run", "show", run, "--json").out)["outcome"] == "PENDING"
    assert places.there("run", "output", run).errors == "nothing was tried yet\n"
    cancelled = places.there("run", "cancel", run, "--reason", "wrong day")
    assert cancelled.out == f"{run} is CANCELLED\n"
    assert places.there("run", "output", run, "--follow").code == 0, "it has ended"
    again = json.loads(places.there("run", "replay", run, "--reason", "the right day", "--json").out)
    assert again["replay_of"] == run
    assert places.there("audit", "verify").out.startswith("the trail is as it was written\n")


def test_a_shell_on_a_server_completes_its_names(places: Places, tmp_path: Path) -> None:
    with Terminal("sql", "--server", places.server, environment={"HORAE_HISTORY": str(tmp_path / "h")}) as terminal:
        assert places.server in terminal.until("horae> ")
        terminal.send("EXPLAIN JOB nig\t;\n")
        terminal.until("verdict")
        terminal.until("horae> ")
        assert "sys.job_runs" in terminal.says("\\d")
        assert 'There is no job "nope"' in terminal.says("DROP JOB nope;")
        terminal.send("\\q\n")
        assert terminal.ended() == 0


def test_what_is_asked_is_named_once_and_only_once(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    assert inside("job", "list", "--store", places.store, "--server", places.server).code == 2
    assert inside("job", "list", "--server", places.server, "--user", "ann").code == 2
    assert json.loads(inside("job", "list", "--store", places.server, "--json").out)["jobs"]
    monkeypatch.setenv("HORAE_SERVER", places.server)
    assert inside("job", "list").code == 0
    monkeypatch.setenv("HORAE_STORE", places.store)
    both = inside("job", "list")
    assert (both.code, "both set" in both.errors) == (2, True)
    assert inside("job", "list", "--store", places.store).code == 0
    monkeypatch.delenv("HORAE_SERVER")
    monkeypatch.setenv("HORAE_STORE", places.server)
    assert inside("job", "list").code == 0


def test_a_server_that_is_not_there_or_is_another_is_exit_code_3() -> None:
    away = inside("job", "list", "--server", "http://127.0.0.1:1", "--json")
    assert (away.code, json.loads(away.errors)["error"]["code"]) == (3, "server_unavailable")
    assert inside("job", "list", "--server", "ftp://127.0.0.1").code == 2

    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the name that the class has
            pass

    with HTTPServer(("127.0.0.1", 0), Stranger) as other:
        thread = Thread(target=other.serve_forever, daemon=True)
        thread.start()
        found = inside("job", "list", "--server", f"http://127.0.0.1:{other.server_port}")
        other.shutdown()
        thread.join()
    assert (found.code, "no Horae server" in found.errors) == (3, True)


def test_a_command_beside_a_server_s_configuration_means_that_server_s_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HORAE_STORE", raising=False)
    (tmp_path / "horae.toml").write_text(f'[server]\nstore = "sqlite:///{tmp_path}/elsewhere.db"\n')
    assert inside("sql", "CREATE JOB tidy SCHEDULE = EVERY 1h AS 'SELECT 1'").code == 0
    assert (tmp_path / "elsewhere.db").exists()
    assert not (tmp_path / "horae.db").exists()
    assert "tidy" in inside("job", "list").out
    assert inside("job", "list", "--store", f"sqlite:///{tmp_path}/third.db").code == 3
