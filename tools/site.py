"""What the documentation's site needs beyond its pages: links say where they lead, and leave the site nowhere.

On disk a link to another page is labelled with its file's name, which is what one looks for there; on the site with
the page's title. A link to a file of the repository that is no page becomes that file's name.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

_LINK = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)]*)?\)")
DOCS = Path(__file__).parents[1] / "docs"


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by MkDocs with each page's text."""
    folder = PurePosixPath(page.file.src_uri).parent
    return _LINK.sub(lambda found: kept_inside(found, folder), markdown)


def kept_inside(found: re.Match[str], folder: PurePosixPath) -> str:
    """The link as the site has it; `folder` is where the page lies that it stands on."""
    label, target, place = found[1], found[2], found[3] or ""
    parts: list[str] = list(folder.parts)
    for part in PurePosixPath(target).parts:
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
        else:
            name = "/".join(each for each in PurePosixPath(target).parts if each != "..")
            return f"{label} (`{name}`)" if label.strip("`") != name else f"`{name}`"
    if label == target and target.endswith(".md"):
        return f"[{title_of('/'.join(parts))}]({target}{place})"
    return found[0]


@cache
def title_of(page: str) -> str:
    """The first heading of a page; of one that is not there, its name, since others tell of that."""
    file = DOCS / page
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), page)
