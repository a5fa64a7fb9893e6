"""The page of a rehearsal: whole, self-contained, and without a word that strangers could make it say."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from xml.etree import ElementTree

from tests.simulate.acting import part, played

from horae.core.window.window import Window
from horae.simulate.charts import level, scale
from horae.simulate.markup import Markup, joined, tag
from horae.simulate.page import MARK, page

EVIL = "</style></title></svg><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


class Read(HTMLParser):
    """Every element that a page has, with its attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attributes)))
        if name != "meta":
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        self.text += data


@cache
def made() -> str:
    jobs = [part(EVIL, "*/10 * * * *", 900), part("picky", window=Window.after("10m", only=[{"hours": [5]}]))]
    jobs += [part(f"{EVIL[:20]} {number}", seconds=60, pool="p") for number in range(8)]
    return page(played(*jobs, pools={"p": 3}, length="30h", suggest=True))


def test_names_that_are_markup_stay_names() -> None:
    text = made()
    read = Read(text)
    assert not read.open
    names = {name for name, _ in read.elements}
    assert not names & {"script", "img", "link", "iframe", "object", "form", "a"}
    assert EVIL in read.text
    assert not [key for _, attributes in read.elements for key in attributes if key.startswith("on")]


def test_a_page_names_no_place_to_ask_for_anything() -> None:
    text = made()
    attributes = [key for _, found in Read(text).elements for key in found]
    assert not {"src", "href", "action", "style"} & set(attributes)
    assert "url(" not in text
    assert "http" not in text.replace("http-equiv", "")
    policies = [found.get("content") for _, found in Read(text).elements if "http-equiv" in found]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert text.startswith(MARK)


def test_every_picture_is_named_and_well_formed() -> None:
    text = made()
    pictures = text.split("<svg")[1:]
    assert len(pictures) == 3
    for each in pictures:
        root = ElementTree.fromstring(f"<svg{each.partition('</svg>')[0]}</svg>")  # noqa: S314 - our own text
        title, told = root[0], root[1]
        assert (title.tag, told.tag) == ("title", "desc")
        assert root.get("aria-labelledby") == f"{title.get('id')} {told.get('id')}"
        assert title.text


def test_what_happened_is_on_the_page() -> None:
    read = Read(made())
    for said in ("overlap", "UNSCHEDULABLE", "for a slot or a pool", "Runs under way at once", "Windows would flatten"):
        assert said in read.text, said
    assert 'window = { mode = "after"' in read.text
    assert "none of 64 draws in its window is a time that only and avoid allow" in read.text
    for title in ("waited for other jobs", "for its own earlier run", "for a slot or pool"):
        assert title in read.text, title


def test_a_map_says_what_its_colours_stand_for() -> None:
    assert scale(10) == [(0, "none"), (1, "1 to 2"), (2, "3 to 4"), (3, "5 to 6"), (4, "7 to 8"), (5, "9 to 10")]
    for most in range(200):
        said = dict(scale(most))
        counted = [place for place, text in said.items() if place]
        assert all(level(count, most) in said for count in range(most + 1))
        for place in counted:
            first, _, last = said[place].partition(" to ")
            assert {level(count, most) for count in range(int(first), int(last or first) + 1)} == {place}
    for picture in made().split("<svg")[2:]:
        assert "none</text>" in picture


def test_text_is_escaped_and_markup_is_not_escaped_twice() -> None:
    inner = tag("b", "<i>")
    assert inner == "<b>&lt;i&gt;</b>"
    assert tag("p", inner, None, " & ", class_='"x"', data_hidden=None) == (
        '<p class="&quot;x&quot;"><b>&lt;i&gt;</b> &amp; </p>'
    )
    assert isinstance(joined("<"), Markup)
