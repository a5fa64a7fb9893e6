"""Versions on a real server: hostile values are text, any two are compared, what is not for somebody is not there."""

from __future__ import annotations

from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from tests.dashboard.test_pages_jobs import harmless, page
from tests.dashboard.test_rendering import HOSTILE
from tests.web.serving import Served, serving

from horae.web.page_renderer import versions_url


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("versions")
    with serving(f"sqlite:///{folder}/horae.db") as server, server.client() as client:
        for name in HOSTILE:
            for hour, description in ((2, "<b>first</b>"), (5, "<u>second</u>")):
                table = {"cron": f"0 {hour} * * *", "python": "work", "description": description}
                body = {"definition": table, "reason": f"<b>{name}</b>"[:200]}
                answer = client.put(f"/api/v1/jobs/{quote(name, safe='')}", json=body)
                assert answer.is_success, answer.text
        yield server


@pytest.fixture
def browser(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


@pytest.mark.parametrize("name", HOSTILE)
def test_versions_of_any_job_are_shown_as_text_and_lead_to_each_other(browser: httpx.Client, name: str) -> None:
    listed = page(browser, versions_url(name))
    harmless(listed)
    assert unescape(listed).count("<b>first</b> -> <u>second</u>") == 1
    assert f'href="{versions_url(name, 1)}"' in unescape(listed)
    one = page(browser, versions_url(name, 1))
    harmless(one)
    assert "Roll back to this version" in one
    assert f'data-action="POST /api/v1/jobs/{quote(name, safe="")}/rollback"' in unescape(one)
    assert "cron 0 5 * * *" in one
    assert "cron 0 2 * * *" in one


def test_the_present_version_offers_no_way_back_to_itself(browser: httpx.Client) -> None:
    present = page(browser, versions_url(HOSTILE[0], 2))
    assert "Roll back" not in present
    assert "What going back to it would change" not in present


def test_two_versions_are_compared_by_their_numbers_and_a_fault_is_told_in_place(browser: httpx.Client) -> None:
    name = HOSTILE[0]
    compared = page(browser, versions_url(name, old=2, new=1))
    harmless(compared)
    assert "What version 1 says otherwise than version 2" in compared
    for bad, told in (({"old": 7, "new": 1}, "has no version 7"), ({"old": "x"}, "old"), ({"before": "x"}, "before")):
        text = page(browser, versions_url(name, **bad))
        assert told in unescape(text)
        assert 'id="fault"' in text


def test_a_version_that_is_not_there_is_not_found(browser: httpx.Client) -> None:
    assert browser.get(versions_url(HOSTILE[0], 9)).status_code == 404
    assert browser.get(versions_url("no-such-job")).status_code == 404
    assert browser.get(f"{versions_url(HOSTILE[0])}/one").status_code == 400
