"""krontab lines: what each part means, what is taken for granted, and how files are read."""

from __future__ import annotations

from datetime import timedelta

import pytest

from horae import Cron
from horae.core.window.constraint import Constraints
from horae.core.window.distribution import Distribution
from horae.core.window.window import Window
from horae.errors import InvalidKrontab, JobNotFound
from horae.formats.krontab.parser import KrontabJob, KrontabLine, find_job, parse_file, parse_line

FULL = (
    "30 2 * * mon-fri @tz(Europe/Berlin) @win(around,90m) @dist(normal,mu=mid,sigma=10m) "
    "@seed(weekly,salt=pepper) @policy(concurrency=replace,deadline=15m,suspend=true) "
    "@only(hours=1-4;dow=mon-fri) @only(dates=2026-12-24..2026-12-26) "
    "@avoid(between=03:00-03:15;dom=1) @avoid(months=aug) "
    'name="db backup" command="pg_dump -Fc \\"shop\\" > /tmp/shop" user=postgres group=dba cwd=/var/lib '
    "env=PGHOST=db.example env=PGOPTIONS= shell=true umask=027 timeout=1h stdout=/tmp/out stderr=/tmp/err "
    'description="nightly dump # not a comment"'
)


def line(text: str) -> KrontabJob:
    job = parse_line(text)
    assert job is not None
    return job


def with_command(rest: str) -> KrontabJob:
    return line(f"* * * * * name=job command={rest}")


def with_modifier(text: str) -> KrontabJob:
    return line(f"0 3 * * * {text} name=job command=true")


def test_a_full_line_is_understood_in_every_part() -> None:
    assert line(FULL) == KrontabJob(  # noqa: S604 - a description; nothing is run
        name="db backup",
        command='pg_dump -Fc "shop" > /tmp/shop',
        schedule=Cron("30 2 * * mon-fri", tz="Europe/Berlin", fold="both"),
        window=Window.around(
            "90m",
            Distribution("normal", {"mu": "mid", "sigma": "10m"}),
            "weekly",
            "pepper",
            only=[{"hours": "1-4", "dow": "mon-fri"}, {"dates": "2026-12-24..2026-12-26"}],
            avoid=[{"between": "03:00-03:15"}, {"dom": "1"}, {"months": "aug"}],
        ),
        concurrency="replace",
        deadline=timedelta(minutes=15),
        suspend=True,
        user="postgres",
        group="dba",
        cwd="/var/lib",
        env=(("PGHOST", "db.example"), ("PGOPTIONS", "")),
        shell=True,
        umask=0o027,
        timeout=timedelta(hours=1),
        stdout="/tmp/out",  # noqa: S108 - a path in a test of paths
        stderr="/tmp/err",  # noqa: S108 - a path in a test of paths
        description="nightly dump # not a comment",
    )


def test_a_short_line_takes_the_defaults() -> None:
    job = line("*/5 * * * * name=ping command=/bin/true")
    assert (job.name, job.command) == ("ping", "/bin/true")
    assert (job.schedule.expr, job.schedule.tz) == ("*/5 * * * *", "UTC")
    assert (job.schedule.dialect, job.schedule.gap, job.schedule.fold) == ("extended", "skip", "both")
    assert job.window == Window.after(0)
    assert (job.concurrency, job.deadline, job.suspend) == ("forbid", timedelta(0), False)
    assert (job.user, job.group, job.cwd, job.env, job.shell) == (None, None, None, (), False)
    assert (job.umask, job.timeout, job.stdout, job.stderr, job.description) == (None, None, None, None, None)


def test_modifiers_and_fields_stand_in_any_order_after_the_expression() -> None:
    one = "0 3 * * * @tz(Europe/Berlin) @win(after,1h) name=a command=b user=c"
    other = "0 3 * * * user=c command=b @win(after,1h) name=a @tz(Europe/Berlin)"
    assert line(one) == line(other)


@pytest.mark.parametrize(
    "macro", ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@Daily"]
)
def test_a_macro_stands_for_the_five_fields(macro: str) -> None:
    assert line(f"{macro} @tz(UTC) name=a command=b").schedule == Cron(macro, fold="both")


def test_blanks_and_tabs_separate_however_many_there_are() -> None:
    assert line("\t 0\t3  * *\t* \t name=a\tcommand=b  ") == line("0 3 * * * name=a command=b")


VALUES = [
    ("true", "true"),
    ("/bin/a=b", "/bin/a=b"),
    ('"two words"', "two words"),
    ('"tab\there"', "tab\there"),
    (r'"a \"quoted\" word"', 'a "quoted" word'),
    (r'"back\\slash"', r"back\slash"),
    (r'"C:\temp\new"', r"C:\temp\new"),
    (r'"\\\""', r"\""),
    (r"C:\temp", r"C:\temp"),
    (r"trailing\\", r"trailing\\"),
    ('half"way quoted"', "halfway quoted"),
    ('"a"b"c"', "abc"),
    ("a#b", "a#b"),
    ('"# no comment"', "# no comment"),
    ("$HOME/{a,b}*(c)", "$HOME/{a,b}*(c)"),
    ("'single quotes are letters'", None),
    ('"日本語 ü 👍"', "日本語 ü 👍"),
    ('" leading and trailing "', " leading and trailing "),
    ("@daily", "@daily"),
    ('""x', "x"),
]


@pytest.mark.parametrize(("written", "read"), VALUES, ids=[written for written, _ in VALUES])
def test_a_value_is_read_with_its_quotes_taken_off(written: str, read: str | None) -> None:
    if read is None:
        with pytest.raises(InvalidKrontab):
            with_command(written)
    else:
        assert with_command(written).command == read


@pytest.mark.parametrize("text", ["", " ", "\t", "# comment", "   # comment with name=x command=y", "#"])
def test_blank_lines_and_comments_define_nothing(text: str) -> None:
    assert parse_line(text) is None


def test_a_comment_ends_a_line() -> None:
    assert line("0 3 * * * name=a command=b # user=c") == line("0 3 * * * name=a command=b")
    assert line('0 3 * * * name=a command="b # c"#d').command == "b # c#d"


def test_arguments_may_be_spaced_and_quoted() -> None:
    assert with_modifier("@win( around , 1h30m )").window.length == timedelta(minutes=90)
    assert with_modifier('@seed(daily,salt="a, b; (c) #d")').window.salt == "a, b; (c) #d"
    assert with_modifier(r'@seed(stable,salt="\"\\")').window.salt == '"\\'
    assert with_modifier("@seed(stable,salt=a=b)").window.salt == "a=b"
    assert with_modifier("@tz( Europe/Berlin )").schedule.tz == "Europe/Berlin"


@pytest.mark.parametrize("mode", ["after", "before", "around", "center"])
@pytest.mark.parametrize("duration", ["0s", "90m", "PT1H", "1.5h", "500ms"])
def test_every_window_mode_takes_every_duration(mode: str, duration: str) -> None:
    window = with_modifier(f"@win({mode},{duration})").window
    assert window.mode == {"center": "around"}.get(mode, mode)
    assert window == Window(mode, duration)  # type: ignore[arg-type]  # one of the four above


@pytest.mark.parametrize(
    ("text", "distribution"),
    [
        ("@dist(uniform)", Distribution("uniform")),
        ("@dist(skewEarly)", Distribution("skewEarly")),
        ("@dist(skewLate,shape=3.5)", Distribution("skewLate", {"shape": "3.5"})),
        ("@dist(normal, mu=end, sigma=90)", Distribution("normal", {"mu": "end", "sigma": "90"})),
        ("@dist(exponential,lambda=2,dir=late)", Distribution("exponential", {"lambda": "2", "dir": "late"})),
    ],
)
def test_every_distribution_can_be_written(text: str, distribution: Distribution) -> None:
    assert with_modifier(text).window.distribution == distribution


@pytest.mark.parametrize("seed", ["stable", "daily", "weekly"])
def test_every_seed_strategy_can_be_written(seed: str) -> None:
    window = with_modifier(f"@seed({seed})").window
    assert (window.seed, window.salt) == (seed, "")


def test_every_policy_can_be_written() -> None:
    for concurrency in ("allow", "forbid", "replace"):
        assert with_modifier(f"@policy(concurrency={concurrency})").concurrency == concurrency
    assert with_modifier("@policy(deadline=90s)").deadline == timedelta(seconds=90)
    assert with_modifier("@policy(suspend=true)").suspend is True
    assert with_modifier("@policy(suspend=false, deadline=0s)") == with_modifier("")


def test_clauses_of_one_modifier_belong_together_and_modifiers_add_up() -> None:
    together = with_modifier("@only(hours=8-18;dow=mon-fri)").window.constraints
    assert together == Constraints(only={"hours": "8-18", "dow": "1-5"})
    apart = with_modifier("@only(hours=8-18) @only(dow=mon-fri)").window.constraints
    assert apart == Constraints(only=[{"hours": "8-18"}, {"dow": "1-5"}])
    avoided = with_modifier("@avoid(hours=8,9,10; dom=1) @avoid(dates=2026-01-01,2026-05-01)").window.constraints
    assert avoided == Constraints(avoid=[{"dom": 1}, {"hours": "8-10"}, {"dates": "2026-01-01,2026-05-01"}])


def test_the_shell_is_used_only_when_asked_for() -> None:
    assert with_command("true shell=true").shell is True
    assert with_command("true shell=false").shell is False


@pytest.mark.parametrize(("text", "mask"), [("0", 0), ("22", 0o22), ("027", 0o27), ("0077", 0o77), ("777", 0o777)])
def test_a_umask_is_octal(text: str, mask: int) -> None:
    assert with_command(f"true umask={text}").umask == mask


def test_variables_keep_their_order_and_may_be_empty_or_hold_equals_signs() -> None:
    job = with_command('true env=B=1 env=A= env="C=x y" env=_d9=a=b')
    assert job.env == (("B", "1"), ("A", ""), ("C", "x y"), ("_d9", "a=b"))


FILE = """\
# Jobs of the shop.
0 3 * * * name=backup command=dump

\t
*/5 * * * * name=ping command=true # every five
0 4 * * * name=backup command=again
bad line
0 5 * * * name=report command=run
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_a_file_gives_every_job_and_every_fault_with_its_line(end: str) -> None:
    jobs, faults = parse_file(FILE.replace("\n", end), file="shop.krontab")
    assert [(each.line, each.job.name) for each in jobs] == [(2, "backup"), (5, "ping"), (8, "report")]
    assert [(fault.file, fault.line) for fault in faults] == [("shop.krontab", 6), ("shop.krontab", 7)]
    assert jobs[0].job.command == "dump"
    assert "already defined on line 2" in faults[0].reason


def test_a_file_may_lack_its_last_line_end_and_may_be_empty() -> None:
    jobs, faults = parse_file("0 3 * * * name=a command=b")
    assert (jobs, faults) == ((KrontabLine(1, line("0 3 * * * name=a command=b")),), ())
    assert parse_file("") == ((), ())
    assert parse_file("\n\n# x\n") == ((), ())


def test_a_name_taken_by_a_faulty_line_is_still_free() -> None:
    jobs, faults = parse_file("0 99 * * * name=a command=b\n0 3 * * * name=a command=b\n")
    assert ([each.line for each in jobs], [fault.line for fault in faults]) == ([2], [1])


def test_a_third_definition_names_the_first() -> None:
    _, faults = parse_file("\n".join(["0 3 * * * name=a command=b"] * 3), file="x")
    assert [fault.line for fault in faults] == [2, 3]
    assert all("already defined on line 1" in fault.reason for fault in faults)


def test_names_that_differ_in_case_or_quotes() -> None:
    jobs, faults = parse_file('0 3 * * * name=a command=b\n0 3 * * * name=A command=b\n0 3 * * * name="a" command=b\n')
    assert ([each.line for each in jobs], [fault.line for fault in faults]) == ([1, 2], [3])


def test_a_job_is_found_by_its_name() -> None:
    text = "0 3 * * * name=a command=b\n0 4 * * * name=c command=d\n"
    assert find_job(text, "c", file="x").command == "d"
    with pytest.raises(JobNotFound, match='No job "e" in x') as caught:
        find_job(text, "e", file="x")
    assert "a, c" in str(caught.value.hint)


def test_a_faulty_file_finds_nothing() -> None:
    with pytest.raises(InvalidKrontab, match="x:2:"):
        find_job("0 3 * * * name=a command=b\noops\n", "a", file="x")


def test_jobs_are_equal_by_what_they_define() -> None:
    one, same = (
        line("0 3 * * * name=a command=b"),
        line("@policy(deadline=0s)".join(("0 3 * * * ", " command=b name=a"))),
    )
    assert one == same
    assert hash(one) == hash(same)
    for other in ("1 3 * * * name=a command=b", "0 3 * * * name=a command=c", "0 3 * * * name=a command=b shell=true"):
        assert line(other) != one
