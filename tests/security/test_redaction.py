"""Secrets in text: found in every writing and over every border between pieces, compared with a slow second way."""

from __future__ import annotations

import base64
import html
import json
import pickle
import shlex
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from horae.security.redaction import REDACTED, SHORTEST, Redactor, _forms

letters = st.text(alphabet="abAB01=/+-_% \n\"'é", max_size=40)
values = st.text(alphabet='abAB01=/+é"\n ', min_size=SHORTEST, max_size=9).filter(lambda each: len(each.strip()) >= 4)
unhurried = settings(deadline=None)
"""An example may be the one during which the machine does something else."""


def slowly(text: str, secrets: list[str]) -> str:
    """The same by marking every character of every occurrence of every form, one by one."""
    forms = {form for secret in secrets for form in _forms(secret)}
    begins: dict[int, int] = {}
    for start in range(len(text)):
        for form in forms:
            if text.startswith(form, start):
                begins[start] = max(begins.get(start, 0), start + len(form))
    written, place = "", 0
    while place < len(text):
        if place not in begins:
            written += text[place]
            place += 1
            continue
        end = begins[place]
        inside = place + 1
        while inside < end:
            end = max(end, begins.get(inside, 0))
            inside += 1
        written += REDACTED
        place = end
    return written


@unhurried
@given(st.lists(values, min_size=1, max_size=3), st.lists(letters | values, max_size=8))
@example(["aaaa"], ["aaaaaaaaa"])
@example(["abab", "baba"], ["xababab"])
@example(["aaaa", "aaaab"], ["aaaab"])
def test_what_is_left_is_what_no_form_of_any_secret_covers(secrets: list[str], pieces: list[str]) -> None:
    text = "".join(pieces)
    assert Redactor(secrets).text(text) == slowly(text, secrets)


@unhurried
@given(st.lists(values, min_size=1, max_size=3), st.lists(letters | values, max_size=8), st.data())
def test_pieces_give_what_the_whole_gives_wherever_it_is_cut(
    secrets: list[str], pieces: list[str], data: st.DataObject
) -> None:
    text = "".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    redactor = Redactor(secrets)
    written = [redactor.feed(text[start:end]) for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert "".join(written) + redactor.end() == redactor.text(text) == slowly(text, secrets)


def test_one_character_at_a_time_hides_a_secret_and_keeps_back_less_than_its_longest_form() -> None:
    secret = "correct horse battery staple"  # noqa: S105 - made up
    redactor = Redactor([secret])
    longest = max(map(len, _forms(secret)))
    text = f"before {secret} after correct horse battery no, {secret[:10]}"
    written = ""
    for count, letter in enumerate(text, 1):
        written += redactor.feed(letter)
        assert count - len(written) < longest + len(secret)
        assert len(redactor._kept) < longest
    assert written + redactor.end() == f"before {REDACTED} after correct horse battery no, correct ho"


def test_text_that_cannot_begin_a_secret_is_handed_on_at_once() -> None:
    redactor = Redactor(["hunter2000"])
    assert redactor.feed("all is well\n") == "all is well\n"
    assert redactor.feed("it is hunt") == "it is "
    assert redactor.feed("ing season") == "hunting season"
    assert redactor.end() == ""


def test_an_endless_chain_of_overlapping_matches_is_one_black_stretch_in_little_memory() -> None:
    redactor = Redactor(["aaaa"])
    written = [redactor.feed("a" * 1000) for _ in range(50)]
    assert len(redactor._kept) < 10
    assert "".join(written) + redactor.end() == REDACTED


def test_after_the_end_the_next_piece_is_a_text_of_its_own() -> None:
    redactor = Redactor(["secret"])
    assert redactor.feed("sec") + redactor.end() == "sec"
    assert redactor.feed("ret") + redactor.end() == "ret"


SECRET = 'p/w "é"+1\\x'  # noqa: S105 - made up


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(SECRET).replace("/", "\\/"),
        repr(SECRET),
        ascii(SECRET),
        html.escape(SECRET),
        shlex.quote(SECRET),
        quote(SECRET),
        quote(SECRET, safe=""),
        quote(SECRET, safe="").lower(),
        quote_plus(SECRET),
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
    ],
)
def test_every_writing_of_a_secret_is_found(written: str) -> None:
    left = Redactor([SECRET]).text(f"<<{written}>>")
    assert left.strip('"') in (f"<<{REDACTED}>>", f"<<'{REDACTED}'>>", f'<<"{REDACTED}">>')


@unhurried
@given(st.binary(min_size=4, max_size=20), st.binary(max_size=7), st.binary(max_size=7))
def test_in_base64_of_something_longer_no_character_that_is_the_secrets_own_is_left(
    secret: bytes, before: bytes, after: bytes
) -> None:
    assume(len(secret.strip()) >= SHORTEST)
    text = base64.b64encode(before + secret + after).decode()
    left = Redactor([secret]).text(text)
    own = text[-(-8 * len(before) // 6) : 8 * (len(before) + len(secret)) // 6]
    assert REDACTED in left
    assert own not in left


def test_each_line_of_a_secret_with_several_lines_is_found_alone() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nab\n-----END KEY-----\n"
    left = Redactor({"tls": key}).text(f"  line: MIIEvQIBADANBg\nab stays\n{key}")
    assert "MIIE" not in left
    assert "ab stays" in left
    assert left.startswith("  line: [secret tls]\n")


def test_names_stand_in_the_place_of_values_and_both_where_they_overlap() -> None:
    redactor = Redactor({"one": "abcdef", "two": "defghi"})
    assert redactor.text("xabcdefx defghi abcdefghi") == "x[secret one]x [secret two] [secret one][secret two]"


def test_short_secrets_are_left_alone_and_the_reader_is_told_which() -> None:
    redactor = Redactor({"pin": "123", "blank": "  \n ", "password": "1234"})
    assert redactor.text("123 1234") == "123 [secret password]"
    assert redactor.notice == (
        "2 of its secrets (pin, blank) have fewer than 4 characters and are not taken out of this output"
    )
    assert Redactor(["1234"]).notice is None
    assert "1 of its secrets have" in (Redactor(["1"]).notice or "")


def test_nothing_to_hide_changes_nothing() -> None:
    redactor = Redactor([])
    assert redactor.feed("any") + redactor.end() + redactor.text("thing") == "anything"


def test_bytes_that_are_no_text_are_found_as_they_are_printed_and_encoded() -> None:
    secret = b"\xff\xfeabcd\x00\x01"
    redactor = Redactor([secret])
    assert redactor.text(secret.decode("utf-8", "replace")) == REDACTED
    assert redactor.text(secret.hex()) == REDACTED
    assert redactor.text("\ufffd\ufffd\ufffd\ufffd") == "\ufffd" * 4


def test_a_redactor_shows_no_secret_and_cannot_be_sent_to_another_process() -> None:
    redactor = Redactor(["hunter2000"])
    assert "hunter" not in repr(redactor)
    with pytest.raises(TypeError):
        pickle.dumps(redactor)
