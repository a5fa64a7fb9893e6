"""Printing a krontab job and reading it again gives the same job; breaking a line gives a fault that can be shown."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.golden_decisions import Mode, Strategy
from tests.core.test_krontab import FULL, line
from tests.tier import examples

from horae import Cron
from horae.core.window.constraint import Constraints
from horae.core.window.decision import LONGEST_EXACT
from horae.core.window.distribution import Distribution
from horae.core.window.window import Window
from horae.errors import InvalidKrontab
from horae.formats.krontab.parser import KrontabJob, parse_file, parse_line

thorough = settings(derandomize=True, deadline=None, max_examples=examples(150))

LETTERS = st.characters(exclude_categories=("C", "Z")) | st.sampled_from(" \t\"\\'()#,;=@%$")
TEXTS = st.text(LETTERS, min_size=1, max_size=30)
NAMES = st.text(st.characters(exclude_categories=("C", "Z")) | st.sampled_from(' "\\()#,;=@'), min_size=1, max_size=30)
MODES: tuple[Mode, ...] = ("after", "before", "around", "center")
STRATEGIES: tuple[Strategy, ...] = ("stable", "daily", "weekly")
EXPRESSIONS = (
    "* * * * *",
    "*/5 * * * *",
    "0 3 * * *",
    "0  3\t* *  *",
    "15,45 9-17 * * mon-fri",
    "0 0 1,15 jan-jun *",
    "0 12 * * 7",
    "5/10 0-23/2 1-15 */3 SUN",
    "0 0 29 2 *",
    "@daily",
    "@Weekly",
)
ZONES = ("UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Asia/Kathmandu", "Etc/GMT+12")
DURATIONS = st.timedeltas(timedelta(0), timedelta(days=400))
DISTRIBUTIONS = st.sampled_from(
    [
        Distribution(),
        Distribution("skewEarly"),
        Distribution("skewLate", {"shape": "2.5"}),
        Distribution("normal", {"mu": "end"}),
        Distribution("normal", {"sigma": "1h 30m", "mu": "nominal"}),
        Distribution("normal", {"sigma": "90"}),
        Distribution("exponential", {"lambda": "0.5", "dir": "late"}),
    ]
)
CLAUSES: dict[str, st.SearchStrategy[Any]] = {
    "hours": st.sets(st.integers(0, 23), min_size=1, max_size=6),
    "dow": st.sampled_from(["mon-fri", "0", 7, "sat,sun", [1, 3]]),
    "dom": st.sets(st.integers(1, 31), min_size=1, max_size=4),
    "months": st.sampled_from(["jan", "1-6", [12, 1], "FEB,mar"]),
    "between": st.sampled_from(["22:00-06:00", ["08:00-12:00", "13:00-24:00"], "00:00-00:00"]),
    "dates": st.sampled_from(["2026-01-01", "2026-12-24..2026-12-26", ["2026-05-01", "2026-10-03..2026-10-04"]]),
}
SETS = st.dictionaries(st.sampled_from(sorted(CLAUSES)), st.none(), min_size=1, max_size=3).flatmap(
    lambda kinds: st.fixed_dictionaries({kind: CLAUSES[kind] for kind in kinds})
)


CLAUSE = SETS.map(lambda clauses: dict([next(iter(clauses.items()))]))


@st.composite
def windows(draw: st.DrawFn) -> Window:
    length = draw(DURATIONS)
    return Window(
        draw(st.sampled_from(MODES)),
        length,
        draw(DISTRIBUTIONS),
        draw(st.sampled_from(STRATEGIES)),
        draw(st.just("") | TEXTS),
        Constraints(draw(st.lists(SETS, max_size=2)), draw(st.lists(CLAUSE, max_size=2))),
        length <= LONGEST_EXACT and draw(st.booleans()),
    )


@st.composite
def jobs(draw: st.DrawFn) -> KrontabJob:
    optional = st.none() | TEXTS
    variables = draw(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), TEXTS, max_size=3))
    return KrontabJob(
        name=draw(NAMES.map(str.strip).filter(bool)),
        command=draw(TEXTS),
        schedule=Cron(draw(st.sampled_from(EXPRESSIONS)), tz=draw(st.sampled_from(ZONES)), fold="both"),
        window=draw(windows()),
        concurrency=draw(st.sampled_from(("forbid", "allow", "replace"))),
        deadline=draw(DURATIONS),
        suspend=draw(st.booleans()),
        user=draw(optional),
        group=draw(optional),
        cwd=draw(optional),
        env=tuple(variables.items()),
        shell=draw(st.booleans()),
        umask=draw(st.none() | st.integers(0, 0o7777)),
        timeout=draw(st.none() | DURATIONS),
        stdout=draw(optional),
        stderr=draw(optional),
        description=draw(optional),
    )


@thorough
@given(jobs())
def test_a_printed_job_reads_back_to_the_same_job(job: KrontabJob) -> None:
    assert parse_line(str(job)) == job
    printed = str(line(str(job)))
    assert str(line(printed)) == printed


@settings(derandomize=True, deadline=None, max_examples=examples(25))
@given(st.lists(jobs(), max_size=4, unique_by=lambda job: job.name), st.sampled_from(["\n", "\r\n", "\n\n", "\n# x\n"]))
def test_a_printed_file_reads_back_to_the_same_jobs(defined: list[KrontabJob], between: str) -> None:
    found, faults = parse_file(between.join(str(job) for job in defined))
    assert not faults
    assert [each.job for each in found] == defined


@thorough
@given(TEXTS)
def test_a_text_survives_in_every_field(text: str) -> None:
    base = line("0 3 * * * name=a command=b")
    job = KrontabJob("a", text, base.schedule, base.window, cwd=text, env=(("A", text),), description=text)
    assert parse_line(str(job)) == job


@pytest.mark.parametrize("end", ["\n", "\r", "\0", "\u00a0", "\u2028"], ids=ascii)
def test_a_job_that_no_line_can_hold_is_not_printed_as_two(end: str) -> None:
    base = line("0 3 * * * name=a command=b")
    job = KrontabJob("a", f"b{end}@daily name=x command=y", base.schedule, base.window)
    try:
        printed = str(job)
    except InvalidKrontab:
        return
    found, _ = parse_file(printed)
    assert [each.job for each in found] in ([], [job])


LINES = [
    (FULL, None),
    ("*/5 * * * * command=true name=ping", "*/5 * * * * name=ping command=true"),
    ("0  3 * *\t* name=a command=b", "0 3 * * * name=a command=b"),
    ("0 3 * * * @tz(UTC) @win(after,0s) @dist(uniform) @seed(stable) name=a command=b", "0 3 * * * name=a command=b"),
    ("0 3 * * * @policy(concurrency=forbid,deadline=0s,suspend=false) name=a command=b", "0 3 * * * name=a command=b"),
    ("0 3 * * * @win(around,0s) name=a command=b", "0 3 * * * @win(around,0s) name=a command=b"),
    ("0 3 * * * @win(after,PT90M) name=a command=b", "0 3 * * * @win(after,1h30m) name=a command=b"),
    (
        "0 3 * * * @policy(suspend=true,deadline=90s,concurrency=allow) name=a command=b",
        "0 3 * * * @policy(concurrency=allow,deadline=1m30s,suspend=true) name=a command=b",
    ),
    ('0 3 * * * @seed(stable,salt="x") name=a command=b', "0 3 * * * @seed(stable,salt=x) name=a command=b"),
    ('0 3 * * * @seed(daily,salt="x,y") name=a command=b', '0 3 * * * @seed(daily,salt="x,y") name=a command=b'),
    (
        "0 3 * * * @dist(normal,sigma=5m,mu=mid) name=a command=b",
        "0 3 * * * @dist(normal,mu=mid,sigma=5m) name=a command=b",
    ),
    (
        "0 3 * * * @only(hours=9,8,7;dow=fri-sun) name=a command=b",
        "0 3 * * * @only(dow=0,5-6;hours=7-9) name=a command=b",
    ),
    (
        "0 3 * * * @avoid(hours=1;dom=2) @avoid(hours=3) name=a command=b",
        "0 3 * * * @avoid(dom=2) @avoid(hours=1) @avoid(hours=3) name=a command=b",
    ),
    (
        "0 3 * * * name=a command=b umask=0022 shell=false timeout=90s env=B=1 env=A=",
        "0 3 * * * name=a command=b env=B=1 env=A= umask=022 timeout=1m30s",
    ),
    (r'0 3 * * * name="a b" command="say \"hi\" \\ (now)"', r'0 3 * * * name="a b" command="say \"hi\" \\ (now)"'),
    (r"0 3 * * * name=a command=C:\x\y", r"0 3 * * * name=a command=C:\x\y"),
    ("@daily name=a command=b # note", "@daily name=a command=b"),
]


@pytest.mark.parametrize(("text", "printed"), LINES, ids=[text[:60] for text, _ in LINES])
def test_a_line_is_printed_in_one_canonical_form(text: str, printed: str | None) -> None:
    job = line(text)
    assert parse_line(str(job)) == job
    assert str(line(str(job))) == str(job)
    if printed is not None:
        assert str(job) == printed


def broken(chooser: Random, text: str) -> str:
    """`text` with a few letters dropped, doubled, swapped in or cut off."""
    for _ in range(chooser.randint(1, 4)):
        at = chooser.randrange(len(text) + 1)
        letter = chooser.choice(' \t"\\()=@,;#*/-0123456789abcxyzäµ\u0660\0\r\ud800')
        text = chooser.choice(
            (
                text[:at] + text[at + 1 :],
                text[:at] + letter + text[at:],
                text[:at] + letter + text[at + 1 :],
                text[:at] + text[at : at + 9] * 2 + text[at + 9 :],
                text[:at],
            )
        )
    return text


def read(text: str, number: int) -> KrontabJob | InvalidKrontab | None:
    try:
        return parse_line(text, file="f", line=number)
    except InvalidKrontab as fault:
        return fault


def test_a_broken_line_is_a_fault_within_it_or_a_job_that_prints() -> None:
    chooser = Random(41)
    faults = 0
    for number in range(3_000):
        text = broken(chooser, chooser.choice(LINES)[0])
        found = read(text, number)
        if isinstance(found, InvalidKrontab):
            faults += 1
            assert (found.file, found.line) == ("f", number)
            assert 1 <= found.column <= len(text) + 1
            assert str(found).isprintable()
        elif found is not None:
            assert parse_line(str(found)) == found
    assert 1_000 < faults < 2_900
