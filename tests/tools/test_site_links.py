"""Links on the documentation's site: titles for pages, names for files that are none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tools.site import on_page_markdown


def shown(text: str, page: str = "jobs.md") -> str:
    return on_page_markdown(text, page=SimpleNamespace(file=SimpleNamespace(src_uri=page)))


@pytest.mark.parametrize(
    ("written", "page", "on_the_site"),
    [
        ("see [time.md](time.md)", "jobs.md", "see [Time and schedules](time.md)"),
        ("see [time.md](time.md#cron)", "jobs.md", "see [Time and schedules](time.md#cron)"),
        ("see [the clocks](time.md)", "jobs.md", "see [the clocks](time.md)"),
        ("see [time.md](../time.md)", "decisions/0003-time.md", "see [time.md](../time.md)"),
        ("[examples/basic.py](../examples/basic.py)", "jobs.md", "`examples/basic.py`"),
        ("[first steps](../examples/basic.py)", "jobs.md", "first steps (`examples/basic.py`)"),
        ("[nowhere.md](nowhere.md)", "jobs.md", "[nowhere.md](nowhere.md)"),
        ("![a picture](pictures/run.png)", "jobs.md", "![a picture](pictures/run.png)"),
    ],
)
def test_a_link_is_shown_as_what_it_leads_to(written: str, page: str, on_the_site: str) -> None:
    assert shown(written, page) == on_the_site
