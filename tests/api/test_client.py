"""The client asks a real server in the words of the desk, and raises what the server's desk raised."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.web.serving import Served, serving, settings_with_key

from horae import errors
from horae.api.client import Client, is_loopback, rebuild_error
from horae.api.operations import BY_NAME
from horae.errors import (
    AccessDenied,
    HoraeError,
    InvalidCron,
    InvalidInput,
    InvalidStatement,
    JobNotFound,
    LoginFailed,
    VersionConflict,
)

MOMENT = "2027-03-01T09:00:00Z"
ODD = "a/b é?"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("client")
    url = f"sqlite:///{folder / 'horae.db'}"
    with serving(url, settings=settings_with_key(folder)) as made:
        yield made


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.url) as made:
        yield made


def test_every_operation_is_asked_over_the_wire_and_answered_in_its_own_shape(client: Client) -> None:
    asked: set[str] = set()

    def call(operation: str, /, **parameters: object) -> None:
        asked.add(operation)
        answered = client.call(operation, **parameters)
        assert type(answered) is BY_NAME[operation].answers

    run = client.call("trigger", name="etl", payload={"day": 1}, key="k")
    asked.add("trigger")
    assert run.fresh
    assert not client.call("trigger", name="etl", payload={"day": 1}, key="k").fresh
    definition = {"cron": "0 2 * * *", "python": "work", "description": "new"}
    call("list_jobs", search="n", outcomes=3, descending=True, limit=10)
    call("get_job", name=ODD)
    call("put_job", name="made", definition=definition, version=0)
    wanted = {"jobs": {"made": definition}}
    call("plan", definitions=wanted)
    call("apply", definitions=wanted)
    call("pause", name="made", until=MOMENT, note="a note")
    call("resume", name="made")
    call("disable", name="made")
    call("enable", name="made")
    call("reschedule", name="made", at=MOMENT)
    call("backfill", name="made", start="2026-03-01T00:00:00Z", end="2026-03-01T01:00:00Z")
    call("explain_job", name="made")
    call("job_calendar", name="made", year=2027)
    call("job_versions", name="made")
    call("job_version", name="made", version=1)
    call("diff_versions", name="made", old=1, new=1)
    call("rollback", name="made", version=1, expected=1)
    call("export", names="made")
    call("job_runs", name="etl", state="active")
    call("list_runs", since="2020-01-01T00:00:00+01:00", limit=5)
    call("get_run", run_id=run.run_id)
    call("report", run_id=run.run_id)
    call("run_output", run_id=run.run_id)
    call("cancel", run_id=run.run_id, reason="enough")
    call("replay", run_id=run.run_id, reason="once more")
    call("attempt_output", attempt_id="attempt_00000000-0000-4000-8000-000000000000")
    call("list_schedules", search="etl")
    for name in ("preview", "post_preview"):
        call(name, text="0 9 * * *", year=2027, at=MOMENT)
    for name in ("overview", "nodes", "doctor", "settings", "me", "users", "roles", "secrets", "rotate_secrets"):
        call(name)
    call("sql", text="SHOW JOBS")
    call("set_setting", name="scheduler.catch_up", value="none")
    call("set_setting", name="scheduler.catch_up", value=None)
    call("list_audit", limit=5)
    call("verify_audit")
    call("create_role", name="ops")
    call("drop_role", name="ops")
    call("create_user", name="bob")
    call("alter_user", name="bob", is_enabled=False)
    call("drop_user", name="bob")
    call("put_secret", name="api", value="s3cret")
    call("drop_secret", name="api")
    call("tokens")
    call("drop_job", name="made", keep_history=True)
    # Tokens that are live close the door behind whoever makes them; the next test does that.
    assert set(BY_NAME) - asked == {"create_token", "revoke_token"}


def test_a_token_says_who_asks_and_a_revoked_one_opens_nothing(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path / 'horae.db'}") as served:
        with Client(served.url) as nobody:
            made = nobody.call("create_token", label="deploy", lasts=None)
            assert made.token.expires_at is None
            served.site.porter.look_again()
            with pytest.raises(LoginFailed):
                nobody.call("me")
        with Client(served.url, made.secret) as local:
            assert (local.call("me").name, local.call("me").sign_in) == ("local", "token")
            local.call("create_user", name="ann")
            hers = local.call("create_token", user="ann")
            with Client(served.url, f" {hers.secret}\n") as ann:
                assert ann.call("list_jobs").total == 0
                with pytest.raises(AccessDenied) as refused:
                    ann.call("get_job", name="etl")
                assert refused.value.hint is not None
                assert not local.call("revoke_token", token_id=hers.token.token_id).is_live
                with pytest.raises(LoginFailed):
                    ann.call("me")


def test_what_the_server_says_is_raised_as_what_it_is_with_its_hint_and_parts(client: Client) -> None:
    with pytest.raises(JobNotFound, match='There is no job "missing"') as missing:
        client.call("get_job", name="missing")
    assert missing.value.hint is not None
    with pytest.raises(InvalidStatement) as statement:
        client.call("sql", text="SHOW JOBS;\nSHOW NONSENSE")
    assert (statement.value.line, statement.value.column) == (2, 6)
    with pytest.raises(InvalidCron) as cron:
        client.call("preview", text="61 * * * *")
    assert (cron.value.field, cron.value.expression) == ("minute", "61 * * * *")
    with pytest.raises(VersionConflict) as conflict:
        client.call("put_job", name="etl", definition={"schedule": "none", "python": "work"}, version=7)
    assert (conflict.value.expected, conflict.value.found) == (7, 1)


def test_parameters_that_an_operation_does_not_take_are_refused_before_anything_is_sent() -> None:
    client = Client("http://127.0.0.1:1")
    for name, parameters in (
        ("pause", {"name": "a", "colour": "red"}),
        ("pause", {}),
        ("pause", {"name": 7}),
        ("pause", {"name": "a", "until": "2027-03-01T09:00:00"}),
        ("list_jobs", {"limit": 0}),
        ("dance", {}),
    ):
        with pytest.raises(InvalidInput):
            client.call(name, **parameters)


@pytest.mark.parametrize("kind", [getattr(errors, name) for name in errors.__all__], ids=lambda kind: kind.__name__)
def test_every_error_comes_back_as_the_class_it_was(kind: type[HoraeError]) -> None:
    again = rebuild_error(kind.code, "the message", "the hint", {"line": 3, "message": "mine"})
    assert type(again) is kind
    assert (str(again), again.message, again.hint) == ("the message", "the message", "the hint")
    assert again.details == {"line": 3, "message": "mine"}
    assert again.to_dict()["code"] == kind.code


def test_an_error_that_this_release_does_not_know_is_still_one() -> None:
    told = rebuild_error("from_the_future", "something new", None, {})
    assert type(told) is HoraeError
    assert str(told) == "something new"


@pytest.mark.parametrize("url", ["http://jobs.example.com", "http://10.0.0.1:8080", "http://[2001:db8::1]"])
def test_a_token_is_not_sent_in_the_clear_to_another_machine(url: str) -> None:
    with pytest.raises(InvalidInput, match="everybody on the way"):
        Client(url, "horae_x")
    Client(url, "horae_x", insecure=True)
    Client(url.replace("http", "https"), "horae_x")
    Client(url)


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        ("localhost", True),
        ("LOCALHOST", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost.example.com", False),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_loopback_is_this_machine_and_no_other(host: str, is_here: bool) -> None:
    assert is_loopback(host) is is_here


@pytest.mark.parametrize(
    "url",
    [
        "",
        "jobs",
        "ftp://a",
        "http://",
        "http://a:b",
        "http://a:0",
        "http://a?x=1",
        "http://a#b",
        "http://[",
        "http://u:p@a",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        Client(url)


@pytest.mark.parametrize("token", ["two words", "späti", "a\nb"])
def test_a_token_that_is_none_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Client("https://a", token)
    assert token not in str(refused.value)
    assert re.fullmatch("That is no token", str(refused.value))
