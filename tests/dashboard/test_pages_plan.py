"""The plan page on a real server: what is pasted is planned, shown as text, and applied just so or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html import unescape

import httpx
import pytest
from tests.dashboard.test_pages_jobs import harmless, page
from tests.dashboard.test_rendering import HOSTILE
from tests.web.serving import PASSWORD, Served, serving

from horae.api.responses.plan_responses import Load, Loads
from horae.core.access import Grant, Privilege
from horae.errors import InvalidInput, InvalidJobFile
from horae.formats.toml.job_file import check_job_file
from horae.formats.toml.text import key_text
from horae.web.pages.plan import PlanForm, faults_of
from horae.web.pictures.plan import HEIGHT, file_fault, load_picture

TEXT = """
[jobs.planned]
cron = "0 6 * * *"
python = "nightly"
"""
HTML = {"accept": "text/html"}


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(f"sqlite:///{tmp_path_factory.mktemp('plan')}/horae.db") as server:
        yield server


@pytest.fixture
def browser(served: Served) -> Iterator[httpx.Client]:
    with served.client(headers=HTML) as client:
        yield client


def sent(browser: httpx.Client, text: str, status: int = 200, **more: str) -> str:
    answer = browser.post("/plan", data={"definitions": text.replace("\n", "\r\n"), "do": "plan", **more})
    assert answer.status_code == status, answer.text
    harmless(answer.text)
    return answer.text


def apply_fields(text: str) -> dict[str, str]:
    """What the form that applies a plan would send."""
    form = re.search(r'<form class="plan-apply".*?</form>', text, re.DOTALL)
    assert form is not None, "there is nothing to apply"
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form[0])
    return {name: unescape(value) for name, value in hidden} | {"do": "apply"}


# ---- plan and apply --------------------------------------------------------------------------------------------------


def test_a_plan_changes_nothing_and_applying_it_does_just_that(browser: httpx.Client) -> None:
    text = sent(browser, TEXT, horizon="2d")
    assert "1 to create" in text
    assert "+2 added" in unescape(text)
    assert browser.get("/api/v1/jobs/planned").status_code == 404
    done = browser.post("/plan", data=apply_fields(text) | {"reason": "<b>wanted</b>"}).text
    harmless(done)
    assert 'href="/jobs/planned/versions/1"' in done
    assert "1 created, 0 changed, 0 removed" in done
    kept = browser.get("/api/v1/jobs/planned/versions").json()["versions"][0]
    assert (kept["source"], kept["reason"]) == ("apply", "<b>wanted</b>")
    assert "Nothing to do" in sent(browser, TEXT)


def test_what_a_schedule_s_text_does_not_show_is_shown_by_its_part(browser: httpx.Client) -> None:
    browser.post("/plan", data=apply_fields(sent(browser, TEXT)))
    ends = TEXT + "end = 2099-01-01T00:00:00Z\n"
    text = sent(browser, ends)
    assert "<code>schedule.end</code>" in text
    assert ">2099-01-01T00:00:00Z</pre>" in text
    assert "At once, were there no limits" in text
    browser.post("/plan", data=apply_fields(text))
    assert "<li>schedule.end: none -&gt; 2099-01-01T00:00:00Z</li>" in page(browser, "/jobs/planned/versions")


def test_options_reach_the_plan_and_stay_in_the_form(browser: httpx.Client) -> None:
    text = sent(browser, TEXT, prune="1", update_policy="graceful", horizon="3d")
    assert "1 to create, 4 to remove" in text
    assert '<option value="graceful" selected>' in text
    fields = apply_fields(text)
    assert (fields["prune"], fields["update_policy"], fields["horizon"]) == ("1", "graceful", "3d")
    assert fields["definitions"].replace("\r\n", "\n") == TEXT
    for bad, told in (({"horizon": "soon"}, "horizon"), ({"update_policy": "someday"}, "someday")):
        assert told in unescape(sent(browser, TEXT, 400, **bad))


def test_a_catalog_that_moved_is_told_and_what_is_different_is_planned_anew(browser: httpx.Client) -> None:
    fields = apply_fields(sent(browser, TEXT))
    table = {"every": "1d", "python": "nightly"}
    assert browser.put("/api/v1/jobs/planned", json={"definition": table}).is_success
    answer = browser.post("/plan", data=fields)
    assert answer.status_code == 409
    assert "has changed since plan" in unescape(answer.text)
    assert "1 to change" in answer.text
    assert browser.get("/api/v1/jobs/planned").json()["version"] == 1
    assert apply_fields(answer.text)["plan"] != fields["plan"]


def test_what_was_edited_after_the_plan_is_not_applied_in_its_name(browser: httpx.Client) -> None:
    fields = apply_fields(sent(browser, TEXT))
    answer = browser.post("/plan", data=fields | {"definitions": TEXT.replace("planned", "other")})
    assert answer.status_code == 409
    assert "made of other definitions" in answer.text
    assert "which plan" in browser.post("/plan", data=fields | {"plan": ""}).text
    assert browser.get("/api/v1/jobs/planned").status_code == 404


def test_an_error_stands_in_the_way_of_applying(browser: httpx.Client) -> None:
    text = sent(browser, TEXT + 'pool = "none-such"\n')
    assert "There is no pool" in text
    assert "plan-apply" not in text


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_and_value_is_text(browser: httpx.Client, name: str) -> None:
    definition = f'[jobs.{key_text(name)}]\nevery = "1h"\npython = "nightly"\ndescription = "<b>x</b></textarea>"\n'
    text = sent(browser, definition)
    assert unescape(text).count(name) >= 2
    done = browser.post("/plan", data=apply_fields(text))
    assert done.status_code == 200
    harmless(done.text)
    again = sent(browser, definition.replace("1h", "2h").replace("<b>x", "<u>x"))
    assert "1 to change" in again


# ---- faults ----------------------------------------------------------------------------------------------------------


def test_every_fault_is_shown_at_its_line_and_the_text_stays(browser: httpx.Client) -> None:
    bad = TEXT.replace("0 6", "0 25") + '\n[jobs."<b>"]\nevry = "5m"\npython = "nightly"\n'
    text = unescape(sent(browser, bad, 400))
    assert re.findall(r"Line (\d+), <code>([^<]*)", text) == [("3", "jobs.planned.cron"), ("7", 'jobs."')]
    wrong = re.findall(r'is-wrong"><span class="fault-number">(\d+)</span><code>(.*?)</code>', text)
    assert wrong == [("3", 'cron = "0 25 * * *"'), ("7", 'evry = "5m"')]
    assert "Did you mean every?" in text
    assert f">\n{bad}</textarea>" in text.replace("\r\n", "\n")
    assert 'id="planned"' not in text


@pytest.mark.parametrize("text", ["", " \n", "[jobs", "x = 'no end", "[jobs.a]\nevery = '1d'\nschedule = 4", "\x00"])
def test_a_text_that_says_nothing_readable_is_refused_in_place(browser: httpx.Client, text: str) -> None:
    assert 'role="alert"' in sent(browser, text, 400)


def test_a_line_that_is_too_long_is_cut_and_one_that_is_not_there_is_not_drawn() -> None:
    text = f"[jobs.a]\nevery = '{'x' * 900}'\npython = 'a'\n"
    _, found = check_job_file(text, file="definitions")
    (fault,) = faults_of(found[0], text)
    assert [line.number for line in fault.lines] == [1, 2, 3, 4]
    assert max(len(line.text) for line in fault.lines) < 200
    assert faults_of(InvalidInput("no fault of the text"), text) == ()
    assert file_fault(InvalidJobFile("deep", file="x", line=0, path=""), text).lines == ()


# ---- who may ---------------------------------------------------------------------------------------------------------


def test_a_form_of_a_session_needs_the_token_of_its_page(served: Served) -> None:
    served.user("kate", is_admin=True)
    with served.client(headers=HTML) as client:
        assert client.post("/plan", data={"definitions": TEXT}).headers["location"].startswith("/login")
        client.post("/login", data={"name": "kate", "password": PASSWORD})
        assert client.post("/plan", data={"definitions": TEXT}).status_code == 403
        assert client.post("/plan", data={"definitions": TEXT, "csrf": "guessed"}).status_code == 403
        token = re.search(r'name="csrf" value="([^"]+)"', page(client, "/plan"))
        assert token is not None
        text = sent(client, TEXT, csrf=token[1])
        assert client.post("/plan", data=apply_fields(text) | {"csrf": ""}).status_code == 403
        assert client.get("/api/v1/jobs/planned").status_code == 404
        assert client.post("/plan", data=apply_fields(text)).status_code == 200
        assert client.get("/api/v1/jobs/planned").status_code == 200


def test_another_site_cannot_send_the_form_nor_can_anything_else_than_a_form(browser: httpx.Client) -> None:
    foreign = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    assert browser.post("/plan", data={"definitions": TEXT}, headers=foreign).status_code == 403
    assert browser.post("/plan", json={"definitions": TEXT}).status_code == 415
    assert browser.put("/plan", data={"definitions": TEXT}).status_code == 405


def test_who_may_not_create_jobs_sees_what_is_missing_and_no_button(served: Served) -> None:
    served.user("kate", is_admin=True)
    served.user("ben")
    with served.client(headers=HTML) as client:
        client.post("/login", data={"name": "ben", "password": PASSWORD})
        token = re.search(r'name="csrf" value="([^"]+)"', page(client, "/plan"))
        assert token is not None
        refused = sent(client, TEXT, 403, csrf=token[1])
        assert "CREATE JOB is missing" in refused
        assert "plan-apply" not in refused
        assert "0 jobs of" in page(client, "/plan?start=1")
        # Whoever may look at a job is told what a plan would come to, and is refused nothing by that.
        served.keep(lambda store: store.grant([Grant(Privilege.VIEW_JOB_HISTORY)], ["ben"]))
        text = sent(client, TEXT, csrf=token[1])
        assert "CREATE JOB is missing" in text
        assert "plan-apply" not in text
    assert [each["action"] for each in served.trail("ACCESS_DENIED")] == ["plan or apply definitions"]


# ---- starting from what is there -------------------------------------------------------------------------------------


def test_what_the_catalog_says_is_put_into_the_form_and_planned_comes_to_nothing(browser: httpx.Client) -> None:
    text = page(browser, "/plan?start=1")
    found = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", text, re.DOTALL)
    assert found is not None
    assert "[jobs.etl]" in unescape(found[1])
    assert "Nothing to do" in sent(browser, unescape(found[1]), prune="1")


def test_of_several_namespaces_one_is_chosen(browser: httpx.Client) -> None:
    other = 'namespace = "a & b"\n' + TEXT
    browser.post("/plan", data=apply_fields(sent(browser, other)))
    text = page(browser, "/plan?start=1")
    assert "Which one?" in text
    links = [unescape(each) for each in re.findall(r'href="(/plan\?start=1&amp;namespace=[^"]*)"', text)]
    assert len(links) == 2
    assert "[jobs.planned]" in page(browser, links[0])


# ---- the picture -----------------------------------------------------------------------------------------------------


def a_load(*peaks: int, peak_at: str | None = None) -> Load:
    most = max(peaks)
    return Load(peak=most, peak_at=peak_at, busiest=most, busiest_at=peak_at, starts=9, overlaps=0, peaks=list(peaks))


def test_both_sides_of_the_load_are_drawn_on_one_scale_and_their_peaks_told() -> None:
    now = datetime(2027, 3, 1, tzinfo=UTC)
    loads = Loads(
        before=a_load(1, 0, 2, 0, peak_at="2027-03-01T02:10:00Z"),
        after=a_load(0, 4, 1, 1, peak_at="2027-03-01T01:30:00Z"),
        until="2027-03-01T04:00:00Z",
        jobs=3,
        assumed=0,
        assumed_seconds=60.0,
        is_cut=False,
    )
    drawn = load_picture(loads, now)
    assert drawn is not None
    before, after = drawn.sides
    assert [cell.height for cell in before.cells] == [HEIGHT / 4, 0, HEIGHT / 2, 0]
    assert [cell.height for cell in after.cells] == [0, HEIGHT, HEIGHT / 4, HEIGHT / 4]
    assert [cell.is_peak for cell in before.cells] == [False, False, True, False]
    assert [cell.is_peak for cell in after.cells] == [False, True, False, False]
    assert all(cell.top + cell.height == HEIGHT for side in drawn.sides for cell in side.cells)
    assert before.cells[1].tip == after.cells[1].tip == "{2027-03-01T01:00:00Z}\nbefore 0, after 4 at once"
    assert after.summary == "After: at most 4 runs at once, at 2027-03-01 01:30:00 UTC"


def test_where_nothing_runs_nothing_is_drawn() -> None:
    empty = a_load(0, 0)
    until = "2027-03-02T00:00:00Z"
    loads = Loads(before=empty, after=empty, until=until, jobs=0, assumed=0, assumed_seconds=60.0, is_cut=False)
    assert load_picture(loads, datetime(2027, 3, 1, tzinfo=UTC)) is None


def test_a_form_is_read_with_the_lines_that_were_typed() -> None:
    typed = PlanForm.of({"definitions": "a\r\nb\rc\n", "prune": "1", "horizon": " ", "reason": " why "})
    assert typed == PlanForm("a\nb\nc\n", "", prune=True, reason="why")
