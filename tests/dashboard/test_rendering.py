"""What every page rests on: addresses, escaping, words for states, templates that a strict browser accepts, colours."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
from markupsafe import Markup
from starlette.requests import Request

from horae.core.run.lifecycle import AttemptState, JobState, RunState, TaskState
from horae.web import page_renderer, words
from horae.web.page_renderer import (
    address,
    api,
    environment,
    job_url,
    render,
    requested_parts,
    run_url,
    static,
    time_element,
)
from horae.web.statics import FOLDER, digest

HOSTILE = (
    "nightly/report",
    "größte Übung",
    'say "hello"',
    "it's <b>bold</b>",
    "<script>alert(1)</script>",
    "a?b=c&d#e%2F%",
    "{{ 7 * 7 }}",
    "' onmouseover='alert(1)",
    "… 日本語",
)
TEMPLATES = sorted(page_renderer.TEMPLATES.glob("*.html"))
BLOCKS = re.compile(r"{%.*?%}|{#.*?#}|{{.*?}}", re.DOTALL)


def request_for(path: str = "/", **headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": raw})


# ---- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_a_jobs_address_has_its_whole_name_in_one_segment(name: str) -> None:
    parts = urlsplit(job_url(name))
    assert parts.path.count("/") == 2
    assert unquote(parts.path.removeprefix("/jobs/")) == name
    assert not parts.query
    assert not parts.fragment


@pytest.mark.parametrize("name", HOSTILE)
def test_an_action_names_method_and_address_of_its_operation(name: str) -> None:
    method, url = api("pause", name=name).split(" ")
    assert method == "POST"
    assert unquote(url.removeprefix("/api/v1/jobs/").removesuffix("/pause")) == name


def test_an_address_leaves_out_what_is_not_said() -> None:
    assert address("/jobs", search="a b&c", state=None, tag="", descending=False) == "/jobs?search=a+b%26c"
    assert address("/jobs", descending=True, offset=0) == "/jobs?descending=1&offset=0"
    assert address("/jobs") == "/jobs"
    assert job_url("etl", day="2027-03-01") == "/jobs/etl?day=2027-03-01"
    assert run_url("occ_1/2") == "/runs/occ_1%2F2"


def test_the_address_of_a_static_file_carries_the_digest_of_all() -> None:
    assert static("app.css") == f"/static/app.css?v={digest()}"
    assert re.fullmatch(r"[0-9a-f]{12}", digest())


# ---- escaping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_stays_text_wherever_a_macro_puts_it(name: str) -> None:
    source = """{% import "macros.html" as m with context %}{{ m.job_link(name) }}{{ m.tags([name]) }}
    {{ m.badge(name) }}{{ m.action(api("pause", name=name), name, confirm=name, fields={"reason": name}) }}
    {{ m.code("x", name) }}
    {{ m.facts([(name, name)]) }}{{ m.empty(name, name) }}{{ m.tabs(name, [("a", name)]) }}"""
    text = environment().from_string(source).render(name=name)
    seen = Elements(text)
    assert {tag for tag, _ in seen.found}.isdisjoint({"script", "b"})
    assert not [each for _, attributes in seen.found for each in attributes if each.startswith("on")]
    links = [attributes["href"] or "" for tag, attributes in seen.found if tag == "a"]
    assert unquote(links[0].removeprefix("/jobs/")) == name
    forms = [attributes for tag, attributes in seen.found if tag == "form"]
    assert forms[0]["data-confirm"] == name


def test_a_problem_page_shows_what_was_asked_for_as_text_and_needs_nobody() -> None:
    told = {"title": "<i>", "status": 404, "detail": "<script>x</script>", "hint": None}
    told |= {"code": "not_found", "number": 1200, "request_id": "r1"}
    response = render("problem.html", None, request_for("/x"), status=404, problem=told)
    text = bytes(response.body).decode()
    assert response.status_code == 404
    assert "&lt;script&gt;x" in text
    assert "<script>x" not in text
    assert 'id="who"' not in text
    assert response.headers["cache-control"] == "no-store"


def test_a_time_is_told_in_utc_where_no_script_runs() -> None:
    made = time_element("2027-03-01T09:00:00Z", "relative")
    assert made == Markup('<time datetime="2027-03-01T09:00:00Z" data-time="relative">2027-03-01 09:00:00 UTC</time>')
    assert time_element(None, missing="<never>") == '<span class="soft">&lt;never&gt;</span>'


def test_a_page_is_told_which_of_its_parts_are_asked_for_again() -> None:
    assert requested_parts(request_for(x_fragment="head history")) == frozenset({"head", "history"})
    assert requested_parts(request_for()) is None


# ---- templates -------------------------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """Every start tag of a text, with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        """What stands between script tags."""
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._in_script = tag == "script"

    def handle_data(self, data: str) -> None:
        if self._in_script and data.strip():
            self.inside.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False


def test_a_template_has_no_inline_style_script_or_handler_and_asks_no_other_server() -> None:
    for path in TEMPLATES:
        seen = Elements(BLOCKS.sub(lambda found: "x" if found[0].startswith("{{") else " ", path.read_text()))
        assert not seen.inside, f"{path.name}: script text in a template: the browser would refuse it"
        for tag, attributes in seen.found:
            assert tag != "style", path.name
            for name, value in attributes.items():
                assert name != "style", f"{path.name}: <{tag} style>"
                assert not name.startswith("on"), f"{path.name}: <{tag} {name}>"
                assert not re.match(r"(?i)\s*(javascript:|https?:|//)", value or ""), f"{path.name}: {name}={value}"


def test_a_template_compiles_and_draws_only_signs_that_there_are() -> None:
    symbols = set(re.findall(r'<symbol id="i-([\w-]+)"', (page_renderer.TEMPLATES / "symbols.html").read_text()))
    for path in TEMPLATES:
        environment().get_template(path.name)
        text = path.read_text()
        used = {*re.findall(r'icon\("([\w-]+)"', text), *re.findall(r'#i-([\w-]+)"', text)}
        assert used <= symbols, path.name


def test_a_static_file_takes_nothing_from_elsewhere() -> None:
    for path in FOLDER.glob("*"):
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|@import|url\((?!#)", text), path.name
        assert not re.search(r"\beval\(|innerHTML|insertAdjacentHTML|document\.write|new Function", text), path.name


# ---- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("states", [RunState, TaskState, AttemptState, JobState], ids=lambda states: states.__name__)
def test_states_of_one_kind_can_be_told_apart_without_their_colours(states: type[RunState]) -> None:
    symbols = (page_renderer.TEMPLATES / "symbols.html").read_text()
    signs = [words.glyph(state) for state in states]
    assert len(set(signs)) == len(signs)
    assert len({words.label(state) for state in states}) == len(signs)
    assert all(words.tone(state) in words.TONES for state in states)
    assert all(f'id="i-{sign}"' in symbols for sign in signs)


def test_a_state_that_nobody_knows_is_still_shown() -> None:
    assert words.label("QUITE_NEW") == "Quite new"
    assert words.tone("QUITE_NEW") in words.TONES


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "\u2013"),
        (0, "0 ms"),
        (0.0123, "12 ms"),
        (0.9996, "1 s"),
        (12.44, "12.4 s"),
        (59.96, "1 min"),
        (61, "1 min 1 s"),
        (3_600, "1 h"),
        (7_510, "2 h 5 min"),
        (90_000, "1 d 1 h"),
        (-5, "\u22125 s"),
    ],
)
def test_a_length_is_told_in_at_most_two_units(seconds: float | None, text: str) -> None:
    assert words.length_text(seconds) == text


def test_numbers_and_ids_are_told_shortly() -> None:
    assert words.amount(1_234_567) == "1\u202f234\u202f567"
    assert words.plural(1, "run") == "1 run"
    assert words.plural(2, "retry", "retries") == "2 retries"
    assert words.short_id("occ_9eface5f-8dbf-5345") == "occ_9eface5f"


# ---- colours ---------------------------------------------------------------------------------------------------------

CSS = (FOLDER / "app.css").read_text()
THEMES = {
    "light": r":root \{(.*?)\n\}",
    "dark, chosen": r':root\[data-theme="dark"\] \{(.*?)\n\}',
    "dark, by the system": r":root:not\(\[data-theme\]\) \{(.*?)\n  \}",
}
GROUNDS = ("paper", "surface", "sunken", "raised")
TEXTS = [(text, ground) for text in ("ink", "soft", "accent", "brass", "bad") for ground in GROUNDS]
TONED = [(text, f"{tone}-wash") for tone in words.TONES for text in (tone, "ink")]
INVERTED = [("accent-ink", "accent"), ("paper", "ink"), ("ink", "accent-wash"), ("accent", "accent-wash")]
MARKS = [(f"{tone}-mark", "surface") for tone in ("ok", "run", "warn", "bad", "stop", "miss")]
LINES = [("line-strong", ground) for ground in ("surface", "raised")] + [("brass-mark", "surface")]


def palette(theme: str) -> dict[str, str]:
    block = re.search(THEMES[theme], CSS, re.DOTALL)
    assert block is not None
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block[1]))


def luminance(colour: str) -> float:
    def linear(part: int) -> float:
        share = part / 255
        return share / 12.92 if share <= 0.04045 else float(((share + 0.055) / 1.055) ** 2.4)

    red, green, blue = (linear(int(colour[place : place + 2], 16)) for place in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_the_contrast_of_black_and_white_is_what_wcag_says() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", THEMES)
def test_every_text_can_be_read_on_every_ground_it_stands_on(theme: str) -> None:
    colours = palette(theme)
    weak = {
        f"{text} on {ground}": round(found, 2)
        for text, ground in TEXTS + TONED + INVERTED
        if (found := contrast(colours[text], colours[ground])) < 4.5
    }
    assert not weak


@pytest.mark.parametrize("theme", THEMES)
def test_every_mark_that_means_something_stands_out_from_its_ground(theme: str) -> None:
    colours = palette(theme)
    weak = {
        f"{mark} on {ground}": round(found, 2)
        for mark, ground in MARKS + LINES
        if (found := contrast(colours[mark], colours[ground])) < 3
    }
    assert not weak


def test_dark_is_the_same_whether_chosen_or_the_systems() -> None:
    assert palette("dark, chosen") == palette("dark, by the system")
    assert palette("light").keys() == palette("dark, chosen").keys()
