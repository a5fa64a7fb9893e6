"""The grammar as data: it can be read without going back, every word has a meaning, the page is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.formats.ambiguity import ambiguities
from tools.generate import sql_grammar_page

from horae.core.access import Privilege
from horae.core.job.definition import DEFAULTS
from horae.core.time.duration import parse_duration
from horae.formats.sql import completions, keywords, parse
from horae.formats.sql.binder import FIELDS, SETTINGS
from horae.formats.sql.clause_actions import RETRY_PARTS
from horae.formats.sql.grammar import GRAMMAR, LABELS, TOKENS, UNITS
from horae.formats.sql.parser import grammar_parser
from horae.formats.sql.parser_engine import GrammarParser
from horae.formats.sql.statement_actions import ACTIONS

PAGE = Path(__file__).parents[2] / "docs" / "sql-grammar.md"
ELSEWHERE = {"SCHEDULE", "TIMEZONE", "GAP", "FOLD", "DST", "ON COMPLETION", "RETRY", "TASKS", *RETRY_PARTS}
"""Clauses that are more than one setting or one field."""


def made(grammar: str) -> GrammarParser:
    return GrammarParser(grammar, LABELS, {})


def test_the_next_words_always_say_which_way_to_go() -> None:
    assert ambiguities(grammar_parser()) == []


@pytest.mark.parametrize(
    "grammar",
    [
        "statement = A | A",
        "statement = A B | A",
        "statement = [ A ] A",
        "statement = inner A\ninner = { A }",
        "statement = [ identifier ] A",
        "statement = inner | A\ninner = A B",
    ],
)
def test_the_check_finds_a_grammar_in_which_they_do_not(grammar: str) -> None:
    assert ambiguities(made(grammar))


def test_every_rule_can_be_reached() -> None:
    found, left = set[str](), ["statement"]
    while left:
        name = left.pop()
        found.add(name)
        nodes = [grammar_parser().rules[name]]
        while nodes:
            node = nodes.pop()
            nodes += node.inner
            if node.kind == "rule" and node.text not in found:
                left.append(node.text)
    assert found == set(grammar_parser().rules)


def test_every_clause_of_a_job_has_a_meaning() -> None:
    heads = {
        first.keys
        for rule in ("job_clause", "setting")
        for first in grammar_parser().first(grammar_parser().rules[rule])
    }
    clauses = {" ".join(keys) for keys in heads}
    bodies = {"AS", "CALL", "EXEC", "PYTHON"}
    states = {"ENABLED", "DISABLED", "PAUSED"}
    assert clauses == {*SETTINGS, *FIELDS, *ELSEWHERE, *bodies, *states}


def test_every_setting_of_a_job_has_a_clause() -> None:
    assert {*SETTINGS.values(), "retry", "on_completion"} == set(DEFAULTS.__dataclass_fields__)


def test_every_privilege_can_be_granted() -> None:
    for privilege in Privilege:
        (statement,) = parse(f"GRANT {privilege} TO bob")
        assert getattr(statement, "privileges", None) == (privilege,)


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.rstrip("s") not in ("month", "year")])
def test_every_unit_is_one_that_durations_have(unit: str) -> None:
    assert parse_duration(f"2 {unit}")


def test_every_token_and_every_action_is_known() -> None:
    assert TOKENS.keys() <= LABELS.keys()
    assert ACTIONS.keys() <= grammar_parser().rules.keys()


def test_the_published_page_is_the_grammar_that_is_read() -> None:
    page = PAGE.read_text()
    assert page == sql_grammar_page(), "run make golden"
    for name in grammar_parser().rules:
        assert f"\n{name} = " in page
    for line in GRAMMAR.splitlines():
        assert line.startswith("#") or line in page


def test_keywords_are_every_word_that_is_asked_for() -> None:
    assert {"CREATE", "JOB", "SELECT", "DISTRIBUTION", "HOURS", "AT_LEAST_ONCE", "VALUES"} <= keywords()
    assert "NIGHTLY" not in keywords()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE ", ("JOB", "OR ALTER JOB", "USER", "ROLE", "SECRET", "OR ALTER SECRET")),
        ("ALTER JOB x SET STATE =", ("ENABLED", "DISABLED", "PAUSED")),
        ("DROP JOB x; SHOW JOB", ("RUNS",)),
        ("DROP JOB", ("a name", "IF EXISTS")),
        ("DROP JOB x", (",", "KEEP HISTORY")),
        ("SHOW JOB RUNS", ("FOR",)),
        ("SELECT 1 FROM", ()),
        ("NOTHING OF OURS", ()),
        ("CREATE JOB 'x", ()),
    ],
)
def test_a_shell_is_told_what_could_follow(text: str, expected: tuple[str, ...]) -> None:
    assert set(completions(text)) == set(expected)


def test_a_shell_is_told_how_statements_begin() -> None:
    assert completions("") == completions("DROP JOB x; ")
    assert {"CREATE JOB", "CANCEL JOB RUN", "SELECT", "GRANT"} <= set(completions(""))
