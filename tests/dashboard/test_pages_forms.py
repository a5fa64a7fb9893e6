"""Forms, the door, and the smaller pages: what is read from an address, where one may be sent on to, what is told."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from horae.api.requests import ListAudit, ListRuns, PreviewSchedule
from horae.api.responses.catalog_responses import AuditRow, Node, Nodes, Setting
from horae.api.responses.people_responses import Token, User
from horae.errors import InvalidInput, InvalidTime
from horae.formats.sql.parser import parse
from horae.web.forms import form_fields, read_form_request, safe_next
from horae.web.pages.audit import actor_of, shown_row
from horae.web.pages.console import EXAMPLES
from horae.web.pages.nodes import MOST_HANDLERS, node_views
from horae.web.pages.people import revoke_grant_statement, revoke_role_statement, token_views, user_view
from horae.web.pages.settings import shown_setting, value_text

# ---- reading ---------------------------------------------------------------------------------------------------------


def test_an_address_becomes_a_question_without_what_it_does_not_say() -> None:
    asked = read_form_request(
        ListRuns, {"job": " etl ", "state": "", "since": "2026-03-01T09:00", "theme": "dark"}, limit=50
    )
    assert asked == ListRuns(job="etl", since=datetime(2026, 3, 1, 9, tzinfo=UTC), limit=50)


def test_a_time_with_an_offset_keeps_it() -> None:
    asked = read_form_request(ListRuns, {"until": "2026-03-01T09:00:00+01:00"})
    assert asked.until is not None
    assert asked.until.astimezone(UTC).hour == 8


def test_what_is_no_time_is_refused_by_name() -> None:
    with pytest.raises(InvalidTime, match='Invalid since "yesterday"') as caught:
        read_form_request(ListRuns, {"since": "yesterday"})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("kind", "given", "named"),
    [(ListAudit, {"before": "x"}, "before"), (PreviewSchedule, {"text": "* * * * *", "year": "0"}, "year")],
)
def test_a_field_that_cannot_be_read_is_named(kind: type[ListAudit], given: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        read_form_request(kind, given)


# ---- the door --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/jobs", "/runs/occ_1?attempt=2", "/jobs/a%2Fb", "/explore?text=*/5+*+*+*+*", "/sql#x"]
)
def test_whoever_signs_in_goes_on_to_where_they_wanted(path: str) -> None:
    assert safe_next(path) == path


@pytest.mark.parametrize(
    "path",
    [
        None,
        "",
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "/jobs\\..\\evil",
        "javascript:alert(1)",
        " /jobs",
        "jobs",
        "/jobs\r\nSet-Cookie: a=b",
        "/login",
        "/login?next=/login",
        "/logout",
    ],
)
def test_nobody_is_sent_to_another_server_or_round_in_a_circle(path: str | None) -> None:
    assert safe_next(path) == "/"


def test_a_form_is_read_as_browsers_send_it() -> None:
    assert form_fields(b"name=k%C3%A4te&password=a+b%26c&next=%2Fjobs&name=second") == {
        "name": "käte",
        "password": "a b&c",
        "next": "/jobs",
    }


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"name=%FF", b"&".join(b"a=b" for _ in range(500))])
def test_a_form_that_no_browser_sends_says_nothing(body: bytes) -> None:
    assert form_fields(body) == {}


# ---- smaller pages ---------------------------------------------------------------------------------------------------


def node(name: str | None, state: str, **given: object) -> Node:
    values: dict[str, object] = {
        "started_at": "2026-03-01T09:00:00Z",
        "heartbeat_at": "2026-03-01T09:00:50Z",
        "running": 0,
    }
    return Node(node=f"id-{name}-{state}", name=name, state=state, **values | given)  # type: ignore[arg-type]  # a table


def test_living_nodes_come_first_with_how_long_they_have_been_silent() -> None:
    nodes = [node("b", "DEAD"), node(None, "ALIVE"), node("c", "SILENT"), node("a", "ALIVE", running=4, slots=4)]
    shown = node_views(Nodes(nodes=nodes, now="2026-03-01T09:01:00Z"))
    assert [each.title for each in shown] == ["a", "anonymous node", "c", "b"]
    assert shown[0].silence == 10
    assert [each.is_full for each in shown] == [True, False, False, False]


def test_a_node_with_many_handlers_shows_some_and_counts_the_rest() -> None:
    shown = node_views(
        Nodes(nodes=[node("a", "ALIVE", handlers=[f"h{n:02}" for n in range(30)])], now="2026-03-01T09:01:00Z")
    )
    assert len(shown[0].handlers) == MOST_HANDLERS
    assert shown[0].more_handlers == 30 - MOST_HANDLERS


def row(**given: object) -> AuditRow:
    values: dict[str, object] = {"event": "LOGIN", "actor": "kate", "outcome": "OK", "details": {}}
    base = {"number": 1, "at": "2026-03-01T09:00:00Z", "job": None, "run_id": None, "is_sealed": True}
    return AuditRow(**base | values | given)  # type: ignore[arg-type]  # a table


def test_a_row_of_the_trail_is_told_in_a_line_and_whole() -> None:
    shown = shown_row(row(details={"name": "etl\x1b[2J", "version": 3, "tags": ["a"]}))
    assert shown.summary == "name etl, version 3"
    assert '"tags": [' in shown.details
    assert shown_row(row()).details == ""
    assert len(shown_row(row(details={"text": "x" * 999})).summary) <= 90


@pytest.mark.parametrize(
    ("event", "outcome", "tone"),
    [("LOGIN", "OK", "off"), ("LOGIN_FAILED", "OK", "bad"), ("ACCESS_DENIED", "REFUSED", "bad")],
)
def test_what_was_refused_stands_out(event: str, outcome: str, tone: str) -> None:
    assert shown_row(row(event=event, outcome=outcome)).tone == tone


def test_a_node_signs_with_the_beginning_of_its_incarnation() -> None:
    assert actor_of("2b624ea8-0755-4752-99bc-71fad609eac4") == "node 2b624ea8"
    assert actor_of("kate\u202e") == "kate⟨U+202E⟩"


def test_a_setting_is_shown_as_it_would_be_typed() -> None:
    assert [value_text(value) for value in (None, "last", 5.0, 0.25, 50, True, [1])] == [
        "",
        "last",
        "5",
        "0.25",
        "50",
        "true",
        "[1]",
    ]
    shown = shown_setting(Setting(name="scheduler.heartbeat", value=None, default=5.0))
    assert (shown.short, shown.default, shown.is_set) == ("heartbeat", "5", False)


def test_what_somebody_has_comes_with_the_statement_that_takes_it_back() -> None:
    user = User(
        name="Kate",
        is_admin=False,
        is_enabled=True,
        has_password=True,
        roles=["night shift"],
        grants=['EXECUTE JOB ON JOB "a-b"', "CREATE JOB"],
        created_at=None,
    )
    shown = user_view(user, "kate")
    assert not shown.is_me
    statements = [each.revoke for each in (*shown.roles, *shown.grants)]
    assert statements == [
        'REVOKE "night shift" FROM "Kate"',
        'REVOKE EXECUTE JOB ON JOB "a-b" FROM "Kate"',
        'REVOKE CREATE JOB FROM "Kate"',
    ]
    for statement in statements:
        assert len(parse(statement)) == 1


def test_a_name_with_quotes_in_it_stays_one_name() -> None:
    assert len(parse(revoke_role_statement('a"; DROP JOB x; --', "kate"))) == 1
    assert len(parse(revoke_grant_statement("CREATE JOB", 'k"; DROP JOB x; --'))) == 1


def token(token_id: str, **given: object) -> Token:
    values: dict[str, object] = {"expires_at": None, "revoked_at": None, "is_live": True}
    return Token(token_id=token_id, user="kate", label="", created_at="2026-03-01T09:00:00Z", **values | given)  # type: ignore[arg-type]  # a table


def test_tokens_that_open_something_come_first() -> None:
    old = token("1", is_live=False, expires_at="2026-02-01T00:00:00Z")
    gone = token("2", is_live=False, revoked_at="2026-02-01T00:00:00Z")
    assert [each.state for each in token_views([old, gone, token("3")])] == ["LIVE", "EXPIRED", "REVOKED"]


@pytest.mark.parametrize(("title", "statement"), EXAMPLES)
def test_every_example_of_the_console_can_be_read(title: str, statement: str) -> None:
    assert title
    assert len(parse(statement)) == 1
