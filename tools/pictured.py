"""`make pictures`: the dashboard, photographed by a real Chromium at a demo's own server, for the documentation.

Writes docs/pictures/<page>.png; with `--all FOLDER` every page, light and dark, wide and narrow, into a folder to look
at. Anything a page says on its console, and any request that leads elsewhere, is told and makes it fail.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

DOCS = Path(__file__).parents[1] / "docs" / "pictures"
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Best first: the shell draws the same pages without a desktop's machinery, for a third less work."""
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync", "--no-first-run")
WIDE, NARROW = (1280, 860), (390, 844)
SHOWN = (1280, 760)
"""What the documentation shows of a page: no more than it takes to know it, since its pictures are kept with it."""
EXPLORED = "/explore?text=30%202%20*%20*%20*&timezone=Europe/Berlin"


class Shot(NamedTuple):
    """A page to photograph: under which name, where, and in which theme the documentation shows it."""

    name: str
    path: str
    theme: str = "light"


def browser_path() -> str | None:
    """The system's Chromium, if there is one."""
    return next((found for name in CHROMIUM if (found := shutil.which(name))), None)


@contextmanager
def demo_server() -> Iterator[str]:
    """The address of `horae demo`, which lives as long as the block."""
    with tempfile.TemporaryDirectory(prefix="horae-pictures-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "horae", "demo", "--seconds", "600"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=os.environ | {"NO_COLOR": "1"},
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"http://[\w.:\[\]]+", line):
                    yield found[0]
                    break
            else:
                raise SystemExit("the demo ended without telling its address")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def shots(browser: Browser, address: str) -> tuple[Shot, ...]:
    """The pages, with a job and a run that have something to show."""
    page = browser.new_page()

    def asked(path: str) -> Any:
        return json.loads(page.request.get(f"{address}/api/v1{path}").text())

    runs = asked("/runs?state=failed,completed_with_errors&limit=100")["runs"]
    reports = [(run, asked(f"/runs/{run['run_id']}/report")) for run in runs[:40]]
    run, report = max(reports, key=lambda each: sum(len(task["attempts"]) for task in each[1]["tasks"]))
    # Of an attempt that failed, the output would be a traceback with paths of whoever makes the pictures.
    ended = [task["attempts"][-1] for task in report["tasks"]]
    attempt = next((each["attempt_id"] for each in ended if each["state"] == "SUCCESS"), "")
    page.close()
    return (
        Shot("overview", "/"),
        Shot("overview-dark", "/", "dark"),
        Shot("jobs", "/jobs"),
        Shot("job", f"/jobs/{run['job']}"),
        Shot("runs", "/runs"),
        Shot("run", f"/runs/{run['run_id']}?attempt={attempt}", "dark"),
        Shot("explore", EXPLORED),
        Shot("console", "/sql"),
        Shot("nodes", "/nodes"),
        Shot("audit", "/audit"),
        Shot("settings", "/settings"),
        Shot("people", "/people"),
    )


class Photographer:
    """One browser before one server; remembers what went wrong on any page."""

    def __init__(self, browser: Browser, address: str) -> None:
        self._browser = browser
        self._address = address
        self.faults: list[str] = []

    def take(self, path: str, file: Path, theme: str, size: tuple[int, int], *, whole: bool) -> None:
        page = self._browser.new_page(
            viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if theme == "dark" else "light"
        )
        self._listen(page, path)
        page.goto(self._address + path)
        page.wait_for_load_state("load")
        # The live stream never ends, so the network is never idle: the scripts are given a moment instead.
        page.wait_for_timeout(700)
        page.screenshot(path=file, full_page=whole)
        page.close()

    def _listen(self, page: Page, path: str) -> None:
        page.on("console", lambda said: self._note(path, said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self._note(path, str(error)))
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((self._address, "data:", "blob:"))
                else self._note(path, f"asked {request.url}")
            ),
        )

    def _note(self, path: str, fault: str) -> None:
        self.faults.append(f"{path}: {fault}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.pictured", description=__doc__)
    parser.add_argument("--all", metavar="FOLDER", help="every page in every way, to look at")
    parser.add_argument("--at", metavar="URL", help="of a server that is there already")
    given = parser.parse_args()
    chromium = browser_path()
    if chromium is None:
        raise SystemExit("there is no Chromium here: tools/browser.sh installs one where it may")
    folder = DOCS if given.all is None else Path(given.all)
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        if given.at is not None:
            faults = _photographed(browser, given.at.rstrip("/"), folder, every_way=given.all is not None)
        else:
            with demo_server() as address:
                faults = _photographed(browser, address, folder, every_way=given.all is not None)
        browser.close()
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def _photographed(browser: Browser, address: str, folder: Path, *, every_way: bool) -> list[str]:
    photographer = Photographer(browser, address)
    for shot in shots(browser, address):
        if not every_way:
            photographer.take(shot.path, folder / f"{shot.name}.png", shot.theme, SHOWN, whole=False)
            continue
        for theme in ("light", "dark"):
            photographer.take(shot.path, folder / f"{shot.name}-{theme}-wide.png", theme, WIDE, whole=True)
            photographer.take(shot.path, folder / f"{shot.name}-{theme}-narrow.png", theme, NARROW, whole=True)
    return photographer.faults


if __name__ == "__main__":
    raise SystemExit(main())
