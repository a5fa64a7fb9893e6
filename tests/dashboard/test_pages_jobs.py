"""Overview, jobs and job on a real server: names that are markup, paging, filters, parts asked for again, sizes."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import httpx
import pytest
from tests.dashboard.test_rendering import HOSTILE, Elements
from tests.web.serving import Served, serving

from horae import Cron, Every, Horae, Window
from horae.web.page_renderer import job_url

PAGE_BUDGET = 100_000


def define(app: Horae) -> None:
    for name in HOSTILE:

        @app.job(name, Cron("0 2 * * *", tz="Europe/Brussels"), tags=["<i>tag</i>"], description="<u>&amp;</u>")
        def nothing() -> None: ...

    @app.job("spread", Cron("30 2 * * *", tz="Europe/Brussels"), window=Window.after("30m"), depends_on=["manual"])
    def spread() -> None: ...

    @app.job("manual", None)
    def manual() -> None:
        raise ValueError("<b>no luck</b>")

    for number in range(60):

        @app.job(f"many-{number:02}", Every("30d"), tags=["many"])
        def one() -> None: ...


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(f"sqlite:///{tmp_path_factory.mktemp('pages')}/horae.db", define=define) as server:
        server.run("manual")
        yield server


@pytest.fixture
def browser(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def page(browser: httpx.Client, path: str, **headers: str) -> str:
    response = browser.get(path, headers=headers)
    assert response.status_code == 200, response.text
    return response.text


def jobs_on(text: str) -> list[str]:
    return [unescape(name) for name in re.findall(r'<tr data-job="([^"]*)"', text)]


def harmless(text: str) -> None:
    """Nothing that was a name has become markup."""
    seen = Elements(text)
    assert {tag for tag, _ in seen.found}.isdisjoint({"b", "u"})
    assert all(attributes.get("src") for tag, attributes in seen.found if tag == "script")
    assert not [each for _, attributes in seen.found for each in attributes if each.startswith("on") or each == "style"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_job_of_any_name_has_a_page_that_shows_it_as_text(browser: httpx.Client, name: str) -> None:
    text = page(browser, job_url(name))
    harmless(text)
    heading = re.search(r"<h1>(.*?)</h1>", text)
    assert heading is not None
    assert unescape(heading[1]) == name


def test_lists_with_such_names_are_harmless_and_lead_to_their_pages(browser: httpx.Client) -> None:
    text = page(browser, "/jobs?limit=100")
    harmless(text)
    harmless(page(browser, "/"))
    assert set(HOSTILE) <= set(jobs_on(text))
    for name in HOSTILE:
        assert f'href="{job_url(name)}"' in text


def test_a_page_can_be_asked_what_every_link_on_it_leads_to(browser: httpx.Client) -> None:
    seen = Elements(page(browser, "/jobs"))
    links = {unescape(attributes["href"] or "") for tag, attributes in seen.found if tag == "a"}
    lists = {link for link in links if link.startswith("/jobs?")}
    jobs = {link for link in links if link.startswith("/jobs/")}
    assert len(lists) > 8
    assert len(jobs) == 25
    for link in sorted(lists) + sorted(jobs)[:3]:
        assert browser.get(link).status_code == 200, link


def test_jobs_are_paged_through_without_losing_any(browser: httpx.Client) -> None:
    found: list[str] = []
    path: str | None = "/jobs?tag=many"
    while path:
        text = page(browser, path)
        found += jobs_on(text)
        onward = re.search(r'rel="next" href="([^"]*)"', text)
        path = unescape(onward[1]) if onward else None
    assert found == [f"many-{number:02}" for number in range(60)]


def test_jobs_are_filtered_and_sorted_by_what_the_address_says(browser: httpx.Client) -> None:
    assert jobs_on(page(browser, "/jobs?search=spread")) == ["spread"]
    backwards = jobs_on(page(browser, "/jobs?tag=many&descending=1&limit=3"))
    assert backwards == ["many-59", "many-58", "many-57"]
    assert "No job is like that" in page(browser, "/jobs?search=nothing-like-it")
    assert jobs_on(page(browser, "/jobs?state=PAUSED")) == []


def test_an_address_that_makes_no_sense_gets_the_page_with_what_is_wrong(browser: httpx.Client) -> None:
    for path in ("/jobs?sort=colour", "/jobs?limit=none", "/jobs?state=ASLEEP"):
        response = browser.get(path)
        assert response.status_code == 400, path
        assert 'id="fault"' in response.text
    for query in ("day=yesterday", "day=9999-12-31", "state=ODD"):
        assert 'id="fault"' in page(browser, f"/jobs/spread?{query}&year=nine")


def test_whoever_has_no_job_yet_is_told_how_to_begin_and_it_works(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/horae.db", define=lambda app: None) as server, server.client() as client:
        text = page(client, "/")
        assert "Nothing is scheduled yet" in text
        offered = re.search(r'id="start-sql"[^>]*>(.*?)</pre>', text, re.DOTALL)
        assert offered is not None
        answer = client.post("/api/v1/sql", json={"text": unescape(offered[1])})
        assert answer.status_code == 200, answer.text
        assert "Nothing is scheduled yet" not in page(client, "/")
        assert jobs_on(page(client, "/jobs")) == ["hello"]


def test_whoever_may_see_nothing_gets_pages_with_nothing_on_them(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/horae.db") as server, server.client() as client:
        server.user("ann")
        signed = client.post("/login", json={"name": "ann", "password": "correct horse"})
        assert signed.status_code == 200, signed.text
        for path in ("/", "/jobs"):
            text = page(client, path)
            assert "nightly" not in text
            assert "Signed in as <strong>ann</strong>." in text
            assert re.search(r'<meta name="csrf" content="[^"]{20,}">', text)
        assert "There is no job that you may see" in page(client, "/")
        assert client.get("/jobs/nightly", headers={"accept": "text/html"}).status_code in (403, 404)


def test_a_job_that_is_none_is_told_on_a_page(browser: httpx.Client) -> None:
    response = browser.get("/jobs/no-such", headers={"accept": "text/html"})
    assert response.status_code == 404
    assert 'id="problem"' in response.text


def test_a_jobs_page_shows_when_it_starts_and_why_and_what_hangs_on_it(browser: httpx.Client) -> None:
    text = page(browser, "/jobs/spread")
    assert "At 02:30 every day" in unescape(text)
    assert text.count('<ol class="starts">') == 1
    coming = browser.get("/api/v1/jobs/spread").json()["coming"]
    shifted = [each for each in coming if each["chosen"] != each["nominal"]]
    # Of some day the moment that is chosen is the slot itself.
    assert len(re.findall(r"after its slot", text)) == len(shifted) >= 9
    assert '<span class="trace-subject">verdict</span>' in text
    assert 'href="/jobs/manual"' in text
    assert "CREATE JOB" in text
    assert "clocks change" in text
    assert 'href="/jobs/spread"' in page(browser, "/jobs/manual")


def test_a_failure_stands_on_the_overview_with_its_reason_and_a_way_to_replay_it(browser: httpx.Client) -> None:
    text = page(browser, "/")
    assert "ValueError: &lt;b&gt;no luck&lt;/b&gt;" in text
    assert 'data-open="replay"' in text
    assert 'aria-current="page">Overview' in text


def test_a_mark_of_a_strip_leads_to_its_run(browser: httpx.Client) -> None:
    marks = re.search(r'data-marks="F(\d+),[^"]*" data-runs="/jobs/manual"', page(browser, "/jobs?search=manual"))
    assert marks is not None
    response = browser.get(f"/jobs/manual?slot={marks[1]}")
    assert response.status_code == 303
    assert response.headers["location"].startswith("/runs/occ_")
    assert browser.get("/jobs/manual?slot=99999999999999999").headers["location"] == "/jobs/manual"


def test_a_part_that_is_asked_for_again_comes_without_the_costly_others(browser: httpx.Client) -> None:
    whole = page(browser, "/jobs/spread")
    part = page(browser, "/jobs/spread", **{"x-fragment": "head history"})
    assert 'id="history"' in part
    assert '<svg class="year"' in whole
    assert '<svg class="year"' not in part
    assert len(part) < len(whole)


def test_runs_of_one_day_or_state_are_found(browser: httpx.Client) -> None:
    failed = page(browser, "/jobs/manual?state=FAILED")
    assert failed.count("<tr data-run=") == 1
    assert "No such runs" in page(browser, "/jobs/manual?state=COMPLETED")
    assert "No such runs" in page(browser, "/jobs/manual?day=2001-02-03")


@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs/spread"])
def test_a_page_comes_in_five_requests_and_within_its_budget(browser: httpx.Client, path: str) -> None:
    text = page(browser, path)
    seen = Elements(text)
    scripts = [attributes["src"] or "" for tag, attributes in seen.found if tag == "script"]
    styles = [attributes["href"] or "" for tag, attributes in seen.found if attributes.get("rel") == "stylesheet"]
    assert len(scripts) + len(styles) <= 4
    sent = len(gzip.compress(text.encode(), 5))
    for each in scripts + styles:
        response = browser.get(each)
        assert response.headers["cache-control"].endswith("immutable")
        sent += len(gzip.compress(response.content, 5))
    assert sent < PAGE_BUDGET / 2
    assert all(attributes.get("type") == "module" for tag, attributes in seen.found if tag == "script")


def test_the_theme_that_was_chosen_is_there_before_any_script_runs(browser: httpx.Client) -> None:
    assert '<html lang="en" data-theme="dark">' in page(browser, "/jobs", cookie="horae_theme=dark")
    assert '<html lang="en">' in page(browser, "/jobs", cookie='horae_theme=x"><script>')
    assert '<html lang="en">' in page(browser, "/jobs")


def test_everything_on_a_page_that_can_be_used_has_a_name(browser: httpx.Client) -> None:
    for path in ("/", "/jobs", "/jobs/spread"):
        text = page(browser, path)
        ids = re.findall(r'\sid="([^"]+)"', text)
        assert len(ids) == len(set(ids)), [each for each in ids if ids.count(each) > 1]
        for button in re.findall(r"<button(.*?)>(.*?)</button>", text, re.DOTALL):
            words = re.sub(r"<[^>]*>", "", button[1]).strip()
            assert words or "aria-label=" in button[0], button
        labelled = set(re.findall(r'<label[^>]* for="([^"]+)"', text))
        for field in re.findall(r"<(?:input|select|textarea)\b[^>]*>", text):
            if 'type="hidden"' in field or 'type="checkbox"' in field:
                continue
            name = re.search(r'\sid="([^"]+)"', field)
            assert name is not None, field
            assert name[1] in labelled, field
