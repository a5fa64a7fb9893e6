"""`python -m bench.pages`: how soon each page of the dashboard is painted, and how much it brings along.

A real Chromium that is open visits every page of a demo's own server, each several times, from another page and without
its cache; the figure is the median of its first paint, counted from the start of the navigation, and what came over the
wire. The same is measured of the barest answer there is, `/healthz`: so much is the browser's own. `--json` prints
figures for machines.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from statistics import median
from typing import Any

from playwright.sync_api import Browser, sync_playwright
from tools.pictured import ARGUMENTS, browser_path, demo_server, shots

from bench.timing import table

SOONEST = 200.0
"""Milliseconds within which a page is to be painted."""
MOST = 100_000
"""Bytes that a page may bring along, as they come over the wire."""
ROUNDS = 7
BARE = "a bare answer"
_PAINT = """() => new Promise(told => {
  const found = performance.getEntriesByName('first-contentful-paint')
  if (found.length) { told(found[0].startTime); return }
  new PerformanceObserver((list, observer) => {
    for (const each of list.getEntriesByName('first-contentful-paint')) { observer.disconnect(); told(each.startTime) }
  }).observe({type: 'paint', buffered: true})
})"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    chromium = browser_path()
    if chromium is None:
        print("there is no Chromium here: nothing was measured")
        return 1
    with demo_server() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        pages = [shot for shot in shots(browser, address) if shot.theme == "light" or shot.name == "run"]
        found = {BARE: _measured(browser, address, "/healthz", given.rounds)}
        found |= {shot.name: _measured(browser, address, shot.path, given.rounds) for shot in pages}
        browser.close()
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        rows = [
            [name, f"{each['paint']:.0f} ms", f"{each['bytes'] / 1000:.0f} KB", str(each["requests"])]
            for name, each in found.items()
        ]
        print(table(["page", "first paint", "over the wire", "requests"], rows))
    return 1 if any(each["paint"] > SOONEST or each["bytes"] > MOST for each in found.values()) else 0


def _measured(browser: Browser, address: str, path: str, rounds: int) -> dict[str, Any]:
    paints: list[float] = []
    sizes: list[int] = []
    counts: list[int] = []
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    wire = context.new_cdp_session(page)
    wire.send("Network.enable")
    wire.send("Network.setCacheDisabled", {"cacheDisabled": True})
    received: list[int] = []
    wire.on("Network.loadingFinished", lambda said: received.append(said["encodedDataLength"]))
    for _ in range(rounds):
        page.goto(address + "/healthz")
        received.clear()
        page.goto(address + path)
        paint = float(page.evaluate(_PAINT))
        page.wait_for_load_state("load")
        paints.append(paint)
        sizes.append(sum(received))
        counts.append(len(received))
    context.close()
    return {"paint": median(paints), "bytes": median(sizes), "requests": median(counts)}


if __name__ == "__main__":
    raise SystemExit(main())
