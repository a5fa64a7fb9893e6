"""The page on HTTP: every request on it is made to a real server, and what is answered looks as the page shows it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest
from tests.examples.pages import ROOT
from tests.web.serving import Served, serving

from horae import Cron, Horae, Run
from horae.api.operations import OPERATIONS
from horae.web.http.openapi import refusals

PAGE = (ROOT / "docs" / "http.md").read_text()
_BLOCKS = re.compile(r"^```console\n(.*?)^```\n(?:\n```json\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
EXAMPLES = [
    (command.removeprefix("$ "), answer)
    for commands, answer in _BLOCKS.findall(PAGE)
    for command in commands.strip().split("\n")
]


class Request(NamedTuple):
    """What a curl command asks for."""

    method: str
    target: str
    headers: dict[str, str]
    body: str | None


def request_of(command: str) -> Request:
    """Reads the few options that the page uses."""
    words = iter(shlex.split(command)[1:])
    method, headers, body, target = "", {}, None, ""
    for word in words:
        if word == "-X":
            method = next(words)
        elif word == "-H":
            name, _, value = next(words).partition(": ")
            headers[name] = value
        elif word == "-d":
            body = next(words)
        elif word in ("-b", "-c"):
            assert next(words) == "cookies"
        elif word not in ("-s", "-sN"):
            parts = urlsplit(word)
            assert parts.netloc == "127.0.0.1:8421", word
            target = parts.path + (f"?{parts.query}" if parts.query else "")
    return Request(method or ("POST" if body else "GET"), target, headers, body)


def fits(shown: Any, given: Any) -> bool:
    """Whether an answer has all that the page shows of it, each of its kind; ids, times and figures differ."""
    if isinstance(shown, dict):
        return isinstance(given, dict) and all(
            name in given and fits(each, given[name]) for name, each in shown.items()
        )
    if isinstance(shown, list):
        return isinstance(given, list) and len(given) >= len(shown) and all(map(fits, shown, given))
    if isinstance(shown, str) and re.fullmatch(r"[A-Za-z_ ]+", shown):
        return bool(shown == given)
    return type(shown) is type(given)


def define(app: Horae) -> None:
    @app.task("jobs.nightly_report")
    @app.job("nightly-report", Cron("0 2 * * *", tz="Europe/Brussels"))
    def nightly_report(run: Run) -> None: ...


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(f"sqlite:///{tmp_path_factory.mktemp('open')}/horae.db", define=define) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(f"sqlite:///{tmp_path_factory.mktemp('guarded')}/horae.db", define=define) as server:
        server.user("ann")
        server.sql("GRANT VIEW JOB HISTORY TO ann")
        yield server


def test_every_request_on_the_page_is_answered_as_it_shows(opened: Served, guarded: Served) -> None:
    """In their order, since later ones go on from what the ones before changed."""
    assert len(EXAMPLES) == 15
    cookies, csrf = httpx.Cookies(), ""
    for command, shown in EXAMPLES:
        asked = request_of(command)
        if asked.target.endswith("/events"):
            continue
        is_guarded = "Authorization" in asked.headers or asked.target in ("/login", "/logout")
        server = guarded if is_guarded else opened
        token = guarded.token("ann") if "Authorization" in asked.headers else ""
        headers = {
            name: value.replace("$HORAE_TOKEN", token).replace("$CSRF", csrf) for name, value in asked.headers.items()
        }
        with server.client(cookies=cookies if "cookies" in command else None) as client:
            answer = client.request(asked.method, asked.target, headers=headers, content=asked.body)
            if asked.target == "/login":
                cookies, csrf = client.cookies, answer.json()["csrf"]
        assert answer.status_code < 400 or '"status": 4' in shown, f"{command}: {answer.text}"
        if shown:
            assert fits(json.loads(shown), answer.json()), f"{command}: {answer.text}"


def test_a_request_that_comes_again_is_answered_as_the_page_says(opened: Served) -> None:
    (command,) = [each for each, _ in EXAMPLES if "Idempotency-Key" in each]
    asked = request_of(command)
    with opened.client() as client:
        answers = [client.request(asked.method, asked.target, headers=asked.headers, content=asked.body) for _ in "12"]
        other = client.request(asked.method, asked.target, headers=asked.headers, content='{"payload": null}')
    assert answers[0].json()["run_id"] == answers[1].json()["run_id"]
    assert answers[1].headers["Idempotency-Replayed"] == "true"
    assert other.status_code == 422


def test_the_stream_begins_as_the_page_shows(opened: Served) -> None:
    shown = re.findall(r"^event: (\w+)\ndata: (.*)$", PAGE, re.MULTILINE)
    assert [name for name, _ in shown] == ["hello", "change"]
    found: list[tuple[str, str]] = []
    with opened.client() as client, client.stream("GET", "/api/v1/events") as stream:
        lines = stream.iter_lines()
        opened.do(lambda: opened.app.trigger("nightly-report"))
        while len(found) < len(shown):
            line = next(lines)
            if line.startswith("event: "):
                found.append((line.removeprefix("event: "), next(lines).removeprefix("data: ")))
    for (name, told), (given_name, given) in zip(shown, found, strict=True):
        assert name == given_name
        assert json.loads(told).keys() == json.loads(given).keys()


def test_the_page_tells_every_status_that_there_is() -> None:
    told = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", PAGE, re.MULTILINE) for code in row.split(", ")}
    # By no operation, but by every path: a method that is not possible there.
    assert told == {status for operation in OPERATIONS for status in refusals(operation)} | {405}
