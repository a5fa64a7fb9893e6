"""Runs: all of them, and one of them from its first line of output to its replay."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from playwright.sync_api import Page, expect
from tests.browser import scanning
from tests.browser.driving import Visit, is_marked, mark
from tests.browser.world import RUNS, Stage
from tests.web.serving import eventually


def shown(page: Page) -> list[str]:
    return [
        str(run)
        for run in page.locator("#runs-list tbody tr").evaluate_all("rows => rows.map((row) => row.dataset.run)")
    ]


def test_runs_are_filtered_by_job_state_origin_and_time(stage: Stage, visit: Visit) -> None:
    name = stage.job("failing")
    failed = stage.ran(name)
    page = visit(stage).open("/runs")
    page.get_by_label("Job", exact=True).fill(name)
    page.get_by_label("State", exact=True).select_option(label="Gone wrong")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url(re.compile(f"job={name}"))
    assert shown(page) == [failed]
    expect(page.locator("#runs-list .remark")).to_contain_text("no luck today")
    page.get_by_label("Origin").select_option(label="Schedule")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("No run fits")).to_be_visible()
    page.get_by_role("link", name="Clear").click()
    page.wait_for_url("**/runs")
    page.get_by_label("Job", exact=True).fill("hourly")
    # Between two slots, so that neither end is one of them.
    until = datetime.now(UTC).replace(minute=30) - timedelta(hours=10)
    page.get_by_label("Since (UTC)").fill(f"{until - timedelta(hours=5):%Y-%m-%dT%H:%M}")
    page.get_by_label("Until (UTC)").fill(f"{until:%Y-%m-%dT%H:%M}")
    page.get_by_label("Origin").select_option(label="Backfill")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url(re.compile("since="))
    assert len(shown(page)) == 5
    assert page.get_by_label("Until (UTC)").input_value() == f"{until:%Y-%m-%dT%H:%M}"


def test_pages_of_runs_follow_one_another_without_losing_one(stage: Stage, visit: Visit) -> None:
    stage.past_the_hour()
    page = visit(stage).open("/runs?job=hourly")
    found = shown(page)
    assert len(found) == 50
    page.get_by_role("link", name="Older").click()
    page.wait_for_url(re.compile("before="))
    found += shown(page)
    assert len(set(found)) == len(found) >= RUNS
    page.get_by_role("link", name="Newest").click()
    page.wait_for_url("**/runs?job=hourly")
    assert shown(page) == found[:50]


def test_a_run_shows_its_tasks_attempts_results_and_the_output_of_each(stage: Stage, visit: Visit) -> None:
    page = visit(stage, permissions=["clipboard-read", "clipboard-write"]).live(f"/runs/{stage.etl}")
    expect(page.locator(".gantt-row")).to_have_count(3)
    expect(page.locator(".gantt a")).to_have_count(3)
    expect(page.locator("#run-more .attempts tbody tr:not(.error-row)")).to_have_count(3)
    expect(page.locator(".error-text")).to_contain_text("the warehouse hung up")
    output = page.locator("#output")
    expect(output).to_contain_text(re.compile("^try 1"))
    page.get_by_label("Attempt", exact=True).select_option(label="load, attempt 2 · Success")
    expect(output).to_have_text("try 2\n")
    page.locator(".attempts tr", has_text="extract").get_by_role("link", name="Output").click()
    expect(output).to_have_text("extracted\n")
    expect(output).to_be_focused()
    expect(page.locator("#output-note")).to_have_text("extract, attempt 1")
    page.locator("#output-tools").get_by_role("button", name="Copy").click()
    page.locator("#toasts .toast").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "extracted\n"
    page.get_by_label("Wrap").uncheck()
    expect(output).not_to_have_class(re.compile("wrap"))
    page.locator(".gantt a").first.click()
    page.wait_for_url(re.compile("#attempt-"))
    expect(page.locator("#report")).to_contain_text("etl")
    page.locator(".crumbs").get_by_role("link", name="etl").click()
    page.wait_for_url("**/runs?job=etl")


def test_output_grows_while_a_task_prints_and_the_page_follows_until_somebody_scrolls_up(
    stage: Stage, visit: Visit
) -> None:
    name = stage.job("talking")
    run_id = stage.trigger(name)
    page = visit(stage).live(f"/runs/{run_id}")
    mark(page)
    expect(page.locator("#run-head .badge").first).to_have_text("Running")
    output = page.locator("#output")
    stage.say(name, "first words")
    expect(output).to_have_text("first words\n")
    stage.say(name, *(f"line {number}" for number in range(200)))
    expect(output).to_contain_text("line 199")
    assert output.evaluate("box => box.scrollHeight - box.scrollTop - box.clientHeight < 24"), "it follows"
    output.evaluate("box => { box.scrollTop = 0; }")
    stage.say(name, "news")
    down = page.get_by_role("button", name="New output")
    expect(down).to_be_visible()
    assert output.evaluate("box => box.scrollTop") == 0
    down.click()
    expect(down).to_be_hidden()
    assert output.evaluate("box => box.scrollHeight - box.scrollTop - box.clientHeight < 24")
    stage.say(name, "last words", None)
    expect(page.locator("#run-head .badge").first).to_have_text("Completed")
    expect(output).to_contain_text("last words")
    expect(page.locator("#run-more")).to_contain_text("said all")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    expect(page.get_by_role("button", name="Replay")).to_be_visible()
    assert is_marked(page)


def test_a_run_that_has_not_begun_shows_its_output_once_it_does(stage: Stage, visit: Visit) -> None:
    name = stage.job("talking", overlap="queue")
    first = stage.trigger(name)
    stage.running(first)
    second = stage.trigger(name)
    page = visit(stage).live(f"/runs/{second}")
    expect(page.locator("#output-empty")).to_have_text("No attempt has been made yet.")
    assert not scanning.faults(page) + scanning.pale(page)
    stage.say(name, None)
    stage.ended(first)
    stage.say(name, "my turn", None)
    expect(page.locator("#output")).to_have_text("my turn\n")
    expect(page.locator("#run-head .badge").first).to_have_text("Completed")


def test_a_running_run_is_cancelled_with_a_reason_and_only_when_that_is_confirmed(stage: Stage, visit: Visit) -> None:
    name = stage.job("patient")
    run_id = stage.trigger(name)
    stage.running(run_id)
    page = visit(stage).live(f"/runs/{run_id}")
    assert not scanning.faults(page) + scanning.pale(page)
    page.get_by_role("button", name="Cancel").click()
    page.keyboard.press("Escape")
    expect(page.locator("#cancel-dialog")).not_to_be_visible()
    expect(page.locator("#cancel-open")).to_be_focused()
    assert stage.run(run_id)["is_active"]
    page.get_by_role("button", name="Cancel").click()
    page.locator("#cancel-reason").fill("it hangs & burns")
    page.get_by_role("button", name="Cancel the run").click()
    expect(page.locator("#run-head .badge").first).to_have_text("Cancelled")
    expect(page.locator("#run-reason")).to_contain_text("it hangs & burns")
    expect(page.locator("#run-reason")).to_contain_text("Cancelled by local")


def test_a_replay_takes_a_reason_and_leads_to_the_new_run(stage: Stage, visit: Visit) -> None:
    name = stage.job("failing")
    run_id = stage.ran(name)
    page = visit(stage).live(f"/runs/{run_id}")
    expect(page.locator("#run-error")).to_contain_text("ValueError: no luck today")
    page.get_by_role("button", name="Replay").click()
    page.locator("#replay-go").click()
    expect(page.locator("#replay-dialog")).to_be_visible()
    assert page.locator("#replay-reason").evaluate("field => field.validity.valueMissing")
    assert len(stage.runs(name)) == 1
    page.locator("#replay-reason").fill("the disk is back")
    page.locator("#replay-go").click()
    page.wait_for_url(lambda url: "/runs/occ_" in url and run_id not in url)
    expect(page.locator("#run-reason")).to_contain_text("A replay of")
    expect(page.locator("#run-reason")).to_contain_text("the disk is back")
    page.locator("#run-reason").get_by_role("link").click()
    page.wait_for_url(f"**/runs/{run_id}")


def test_one_task_of_several_is_replayed_alone(stage: Stage, visit: Visit) -> None:
    run_id = stage.etl
    page = visit(stage).live(f"/runs/{run_id}")
    page.get_by_role("button", name="Replay").click()
    page.locator("#replay-reason").fill("only the first half")
    page.get_by_label("Task", exact=True).select_option("extract")
    page.locator("#replay-go").click()
    page.wait_for_url(lambda url: "/runs/occ_" in url and run_id not in url)
    expect(page.locator("#run-head .badge").first).to_have_text("Completed")
    ran = stage.run(page.url.rsplit("/", 1)[1])["report"]["tasks"]
    assert [task["name"] for task in ran if task["attempts"]] == ["extract"]


def test_long_output_comes_with_its_end_and_whole_when_it_is_wanted(stage: Stage, visit: Visit) -> None:
    name = stage.job("talking")
    run_id = stage.trigger(name)
    stage.say(name, *(f"{number:05} of many lines that are printed" for number in range(700)), None)
    stage.ended(run_id)
    page = visit(stage).live(f"/runs/{run_id}")
    output = page.locator("#output")
    expect(output).to_contain_text("00699")
    expect(output).not_to_contain_text("00000")
    page.get_by_role("button", name="Show the whole output").click()
    expect(output).to_contain_text("00000")
    assert output.inner_text().count("\n") >= 699
    eventually(lambda: page.get_by_role("button", name="Show the whole output").is_hidden())
