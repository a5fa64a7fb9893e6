"""The documentation's site: builds without a warning, has every page, and asks nothing of anybody else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_ELSEWHERE = re.compile(r"(https?:)?//")
_FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
_LINKED = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest"}


class Fetched(HTMLParser):
    """Gathers what a browser that shows the page would ask for by itself; links that people follow are none of it."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name = _FETCHED.get(tag)
        if tag == "link" and _LINKED & set(given.get("rel", "").split()):
            name = "href"
        if name is not None and name in given:
            self.addresses.append(given[name])
        self.addresses += re.findall(r"url\((.*?)\)", given.get("style", ""))


def fetched_by(page: Path) -> list[str]:
    parser = Fetched()
    parser.feed(page.read_text())
    return parser.addresses


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` builds it: it fails at the first warning."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_built(site: Path) -> None:
    sources = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert sources == {path.relative_to(site) for path in site.rglob("*.html")} - {Path("404.html")}


def test_the_pages_fetch_only_what_the_site_has(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        for address in fetched_by(page):
            assert not _ELSEWHERE.match(address), f"{page.name} asks {address}"
            if not address.startswith("data:"):
                file = address.partition("?")[0].partition("#")[0]
                base = site if file.startswith("/") else page.parent
                assert (base / file.lstrip("/")).exists(), f"{page.name} asks {address}"


def test_the_style_sheets_fetch_nothing_from_elsewhere(site: Path) -> None:
    sheets = sorted(site.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        for address in re.findall(r"(?:url\(|@import )['\"]?([^'\")]+)", sheet.read_text()):
            assert not _ELSEWHERE.match(address), f"{sheet.name} asks {address}"


def test_what_fetches_is_told_from_what_links() -> None:
    parser = Fetched()
    parser.feed(
        '<a href="https://a.example"></a><link rel="canonical" href="https://b.example"><img src="https://c.example/x">'
        '<link rel="stylesheet" href="//d.example"><script src="e.js"></script><p style="background: url(//f.example)">'
    )
    assert parser.addresses == ["https://c.example/x", "//d.example", "e.js", "//f.example"]


def test_no_page_draws_by_a_script_from_elsewhere(site: Path) -> None:
    """The theme fetches one for such blocks, from a host of others."""
    for page in site.rglob("*.html"):
        assert 'class="mermaid"' not in page.read_text(), page.name
