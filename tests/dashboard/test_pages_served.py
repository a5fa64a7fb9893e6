"""The pages of a real server: what strangers printed stays text, nothing needs what the policy forbids, the door."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
from tests.web.serving import PASSWORD, Served, serving

from horae import Every, Horae, Run

HOSTILE = "\x1b[31m<script>alert(1)</script>\x1b[0m \u202e\x00 </pre><img src=x onerror=alert(2)>"
PAGES = ("/runs", "/plan", "/explore", "/sql", "/nodes", "/audit", "/settings", "/people")
HTML = {"accept": "text/html"}


def hostile_jobs(app: Horae) -> None:
    @app.job('"><script>x</script>', Every("1d"), payload={"html": "<b>"}, description=HOSTILE.replace("\x00", ""))
    def printing(run: Run) -> dict[str, str]:
        print(HOSTILE)
        return {"result": "<script>alert(3)</script>"}

    @app.job("raising", Every("1d"))
    def raising() -> None:
        raise ValueError(HOSTILE)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("pages")
    with serving(f"sqlite:///{folder / 'horae.db'}", define=hostile_jobs) as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def runs(served: Served) -> dict[str, str]:
    """Runs in the same phase of the first test in which the server begins to listen to what tasks print: pytest puts
    another stream in the place of standard output in the next phase."""
    return {name: served.run(name) for name in ("%22%3E%3Cscript%3Ex%3C%2Fscript%3E", "raising")}


def shown(served: Served, path: str) -> str:
    with served.client(headers=HTML) as client:
        answer = client.get(path)
    assert answer.status_code == 200, answer.text[:2_000]
    return answer.text


class Markup(HTMLParser):
    """Every tag of a page, as a browser reads it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def check_markup(page: str) -> None:
    """Nothing of the strangers' is markup, and nothing is in the page that its policy would not let act."""
    tags = Markup(page).tags
    for tag, attributes in tags:
        assert tag not in ("img", "style", "iframe", "object", "b")
        assert not [name for name in attributes if name == "style" or name.startswith("on")], attributes
        if tag == "script":
            assert re.fullmatch(r"/static/[\w.]+\?v=\w+", attributes["src"] or "")
    assert not [letter for letter in page if letter in "\x00\x1b\u202e"]
    ids = [str(attributes["id"]) for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids)), sorted(each for each in set(ids) if ids.count(each) > 1)
    unlabelled = {attributes["for"] for tag, attributes in tags if tag == "label" and "for" in attributes} - set(ids)
    assert not unlabelled


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_small_labelled_and_without_anything_inline(
    served: Served, runs: dict[str, str], path: str
) -> None:
    page = shown(served, path)
    check_markup(page)
    assert len(page.encode()) < 100_000
    assert runs


def test_what_a_task_printed_and_returned_stays_text(served: Served, runs: dict[str, str]) -> None:
    page = shown(served, f"/runs/{next(iter(runs.values()))}")
    check_markup(page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt; ⟨U+202E⟩� &lt;/pre&gt;" in page
    assert "&lt;script&gt;alert(3)" in page
    assert 'class="gantt-bar tone-ok' in page


def test_what_a_task_raised_stays_text_and_stands_at_its_attempt(served: Served, runs: dict[str, str]) -> None:
    page = shown(served, f"/runs/{runs['raising']}")
    check_markup(page)
    assert 'class="code wrap error-text"' in page
    assert "ValueError: &lt;script&gt;" in page


def test_a_run_that_is_none_is_not_found(served: Served) -> None:
    with served.client(headers=HTML) as client:
        assert client.get("/runs/occ_00000000-0000-5000-8000-000000000000").status_code == 404
        assert client.get("/runs/nonsense").status_code in (400, 404)


def test_the_runs_page_goes_on_where_the_one_before_ended(served: Served, runs: dict[str, str]) -> None:
    assert all(run_id in shown(served, "/runs") for run_id in runs.values())
    only = shown(served, "/runs?job=raising&state=FAILED")
    assert runs["raising"] in only
    assert only.count("<tr data-run=") == 1
    newest = max(runs.values(), key=lambda run_id: shown(served, "/runs").index(run_id))
    assert 'rel="prev"' in shown(served, f"/runs?before={newest}")
    with served.client(headers=HTML) as client:
        wrong = client.get("/runs?since=yesterday")
    assert wrong.status_code == 400
    assert "Invalid since &#34;yesterday&#34;" in wrong.text


def test_the_explorer_works_without_scripts(served: Served) -> None:
    page = shown(served, "/explore?text=30+2+*+*+*&timezone=Europe%2FBrussels&year=2026")
    assert "At 02:30 every day" in page
    assert page.count('class="fire"') + page.count('class="fire ') == 10
    assert "clocks change: 2026-03-29, 2026-10-25" in page
    check_markup(page)


@pytest.mark.parametrize(
    "query",
    [
        "text=0+25+*+*+*",
        "text=%3Cscript%3E",
        "text=0+9+*+*+*&timezone=%3Cb%3E",
        "text=0+9+*+*+*&at=never",
        "text=x&year=0",
    ],
)
def test_the_explorer_tells_a_fault_in_place_and_not_as_an_error(served: Served, query: str) -> None:
    page = shown(served, f"/explore?{query}")
    assert 'id="text-fault"' in page
    check_markup(page)


def test_the_explorer_shows_a_window_with_its_trace_and_several_lines_without_one(served: Served) -> None:
    line = "0 1 * * * @win(after,2h) name={} command=/bin/true"
    with served.client(headers=HTML) as client:
        one = client.get("/explore", params={"text": line.format("a")}).text
        two = client.get("/explore", params={"text": line.format("a") + "\n" + line.format("b")}).text
    assert 'id="trace"' in one
    assert 'id="trace"' not in two
    assert "2 jobs" in two
    check_markup(one)


def test_the_console_lists_tables_but_none_that_hold_secrets(served: Served) -> None:
    page = shown(served, "/sql")
    assert "sys.job_runs" in page
    assert not [name for name in ("sys.secrets", "sys.tokens", "sys.sessions", "password_hash") if name in page]


# ---- the door --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("door")
    with serving(f"sqlite:///{folder / 'horae.db'}", define=hostile_jobs, is_running=False) as server:
        server.user("kate", is_admin=True)
        server.user("ben")
        yield server


def sign_in(client: httpx.Client, name: str, password: str, target: str = "/people") -> httpx.Response:
    return client.post("/login", data={"name": name, "password": password, "next": target})


def test_who_signs_in_gets_a_cookie_that_no_script_and_no_other_site_can_use(closed: Served) -> None:
    with closed.client(headers=HTML) as client:
        answer = sign_in(client, "kate", PASSWORD)
        assert (answer.status_code, answer.headers["location"]) == (303, "/people")
        cookie = answer.headers["set-cookie"].lower()
        assert cookie.startswith("horae_session=")
        assert {"httponly", "samesite=lax", "path=/"} <= {part.strip() for part in cookie.split(";")}
        page = client.get("/people").text
        check_markup(page)
        token = re.search(r'<meta name="csrf" content="([^"]+)"', page)
        assert token is not None
        assert client.post("/logout", data={"csrf": token[1]}).status_code == 303
        assert client.get("/people").status_code == 303, "the session has ended"


def test_a_failure_says_the_same_whatever_was_wrong(closed: Served) -> None:
    told = set()
    with closed.client(headers=HTML) as client:
        for name, password in (("kate", "wrong"), ("nobody", PASSWORD), ("", ""), ("kate", ""), ("k" * 2_000, "x")):
            answer = sign_in(client, name, password)
            assert answer.status_code == 401
            assert "set-cookie" not in answer.headers
            found = re.search(r'id="login-fault".*?</div></div>', answer.text, re.DOTALL)
            assert found is not None
            told.add(found[0])
    assert len(told) == 1


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "/\\evil.example", "/\t/evil.example"])
def test_nobody_is_sent_to_another_server_after_signing_in(closed: Served, target: str) -> None:
    with closed.client(headers=HTML) as client:
        assert sign_in(client, "kate", PASSWORD, target).headers["location"] == "/"
        assert client.get("/login", params={"next": target}).headers["location"] == "/"


def test_who_is_no_administrator_is_shown_their_own_part_and_nothing_is_refused_for_it(closed: Served) -> None:
    with closed.client(headers=HTML) as client:
        sign_in(client, "ben", PASSWORD)
        people = client.get("/people").text
        assert "Change password" in people
        assert "kate" not in people
        assert "For administrators" in client.get("/settings").text
        assert client.get("/audit").status_code == 403
        assert client.get("/sql").status_code == 200
        assert client.get("/nodes").status_code == 200
    assert not [row for row in closed.trail("ACCESS_DENIED") if row["actor"] == "ben"]
