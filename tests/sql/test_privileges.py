"""Every statement in the name of every principal: allowed, or refused, noted, and nothing else changed."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import get_args

import pytest
from tests.sql.matrix import CREATE, MATRIX, PRINCIPALS, Case, grants_of, page_table
from tests.sql.stage import Stage

from horae.core.access import Privilege
from horae.core.job import ids
from horae.errors import AccessDenied, LoginFailed
from horae.formats.sql.parser import statement_of
from horae.formats.sql.statements import Statement
from horae.formats.sql.tokens import split

EVERY = tuple(Privilege)
PAGE = Path(__file__).parents[2] / "docs" / "security.md"
_numbers = count(1)


class World:
    """What one statement is about, and those who say it, under names that no other has. `there`: a world of the same
    statement in which nothing was changed, whose job and all else is spoken of instead."""

    def __init__(self, stage: Stage, case: Case, principal: str, there: World | None = None) -> None:
        number = next(_numbers) if there is None else int(there.names["number"])
        self.stage = stage
        self.case = case
        self.name = principal if principal in SHARED else f"{principal}_{number}"
        kinds = ("new", "job", "user", "role", "secret", "fresh")
        self.names: dict[str, str] = {each: f"{each}_{number}" for each in kinds}
        job = self.names["job"]
        self.names |= {"number": str(number), "me": self.name}
        self.names["run"] = ids.keyed_run_id(ids.job_uuid(job), ids.trigger_key("first"))
        self.text = case.text.format(**self.names)
        lines = [*([] if there else self._things()), *self._person(principal)]
        if any(lines):
            self.stage.sql("; ".join(line for line in lines if line))

    def _things(self) -> list[str]:
        names, said = self.names, self.case.text
        return [
            f"CREATE JOB {names['job']} OWNER = owner SCHEDULE = NONE AS 'SELECT 1'",
            f"EXECUTE JOB {names['job']} KEY 'first'" if "{run}" in said else "",
            f"CREATE USER {names['user']}" if "{user}" in said else "",
            f"CREATE ROLE {names['role']}" if "{role}" in said else "",
            f"CREATE SECRET {names['secret']} = 'kept'" if "{secret}" in said else "",
            f"CREATE SECRET {names['secret']} FOR JOB {names['job']} = 'kept'" if "{secret} FOR" in said else "",
        ]

    def _person(self, principal: str) -> list[str]:
        lines = [] if principal in SHARED else [f"CREATE USER {self.name}", *self._rights(principal)]
        if self.case.as_runner and principal in ("owner", "granted", "limited", "member"):
            lines.append(f"GRANT runner TO {self.name}")
        if "OLD PASSWORD" in self.case.text:
            lines.append(f"ALTER USER {self.name} PASSWORD 'the old one'")
        return lines

    def _rights(self, principal: str) -> list[str]:
        taken = self.case.privileges
        if principal == "others":
            return grants_of(tuple(each for each in EVERY if each not in taken), self.name, self.names, on_it=False)
        held = taken or EVERY
        if principal != "member":
            return grants_of(held, self.name, self.names, on_it=principal == "limited")
        role = f"crew_{self.names['number']}"
        return [f"CREATE ROLE {role}", *grants_of(held, role, self.names, on_it=False), f"GRANT {role} TO {self.name}"]


SHARED = ("local", "admin", "owner", "nobody", "disabled")


@pytest.fixture(scope="module")
def peopled(ground: Stage) -> Stage:
    ground.place.sql("CREATE TABLE " + ("sys.stuff" if ground.place.kind == "sqlite" else "stuff") + " (a INTEGER)")
    ground.sql(
        "CREATE USER admin ADMIN; CREATE USER owner; CREATE USER nobody; CREATE USER disabled ADMIN; "
        "CREATE ROLE runner; "
        + ";".join(grants_of(EVERY, "disabled", {"job": "x", "secret": "x"}, on_it=False))
        + "; ALTER USER disabled DISABLED"
    )
    return ground


@pytest.mark.parametrize("case", MATRIX, ids=lambda case: case.says)
def test_a_statement_is_carried_out_for_those_who_may_say_it_and_refused_to_all_others(
    peopled: Stage, case: Case
) -> None:
    untouched: World | None = None
    for principal in PRINCIPALS:
        allowed = case.allows(principal)
        if allowed is None:
            continue
        world = World(peopled, case, principal, None if allowed else untouched)
        untouched = untouched if allowed else world
        if allowed:
            peopled.sql(world.text, None if principal == "local" else world.name)
        elif principal == "disabled":
            _turned_away(peopled, world.text)
        else:
            peopled.refused(world.text, world.name)


def _turned_away(stage: Stage, text: str) -> None:
    before, last = stage.behind.everything(), stage.behind.last_audit()
    with pytest.raises(LoginFailed, match="disabled"):
        stage.sql(text, "disabled")
    assert stage.behind.everything() == before
    (row,) = stage.behind.audit(last)
    assert (row["event"], row["actor"], row["reason"]) == ("LOGIN_FAILED", "disabled", "disabled")


def test_whoever_is_no_user_is_turned_away(peopled: Stage) -> None:
    last = peopled.behind.last_audit()
    with pytest.raises(LoginFailed, match="There is no user"):
        peopled.sql("SHOW JOBS", "a stranger")
    (row,) = peopled.behind.audit(last)
    assert (row["event"], row["actor"], row["reason"]) == ("LOGIN_FAILED", "a stranger", "no such user")


@pytest.mark.parametrize("lacking", [case for case in MATRIX if len(case.privileges) > 1], ids=lambda case: case.says)
def test_of_several_privileges_each_is_needed(peopled: Stage, lacking: Case) -> None:
    for missing in lacking.privileges:
        world = World(peopled, lacking, "nobody")
        user = f"lacks_{world.names['number']}"
        held = tuple(each for each in EVERY if each is not missing)
        peopled.sql("; ".join([f"CREATE USER {user}", *grants_of(held, user, world.names, on_it=False)]))
        error = peopled.refused(world.text, user)
        assert str(missing) in f"{error.message} {error.hint}"


def test_a_refusal_names_who_what_is_missing_and_the_statement_that_gives_it(peopled: Stage) -> None:
    world = World(peopled, MATRIX[0], "nobody")
    job = world.names["job"]
    error = peopled.refused(f"EXECUTE JOB {job}", "nobody")
    assert error.message == f'Job "{job}": "nobody" may not run it: EXECUTE JOB ON JOB {job} is missing'
    assert error.hint == f"An administrator can give it: GRANT EXECUTE JOB ON JOB {job} TO nobody"
    peopled.sql(error.hint.partition(": ")[2])
    peopled.sql(f"EXECUTE JOB {job}", "nobody")
    peopled.sql(f"REVOKE EXECUTE JOB ON JOB {job} FROM nobody")
    peopled.refused(f"EXECUTE JOB {job}", "nobody")


def test_show_jobs_lists_those_that_one_may_look_at(peopled: Stage) -> None:
    world = World(peopled, MATRIX[0], "nobody")
    job = world.names["job"]
    assert peopled.sql("SHOW JOBS", "nobody") == []
    peopled.sql(f"GRANT VIEW JOB HISTORY ON JOB {job} TO nobody")
    assert [row[0] for row in peopled.sql("SHOW JOBS", "nobody")] == [job]
    peopled.sql(f"REVOKE VIEW JOB HISTORY ON JOB {job} FROM nobody")
    peopled.sql("CREATE OR ALTER JOB nobody-else-s SCHEDULE = NONE AS 'SELECT 1'")
    assert {row[4] for row in peopled.sql("SHOW JOBS", "owner")} == {"owner"}
    assert len(peopled.sql("SHOW JOBS", "owner")) < len(peopled.sql("SHOW JOBS"))


def test_the_table_has_every_statement_there_is() -> None:
    world = dict.fromkeys(("new", "job", "user", "role", "secret", "fresh", "me"), "x") | {"number": "1"}
    run = "occ_00000000-0000-5000-8000-000000000000"
    said = {type(statement_of(next(iter(split(case.text.format(run=run, **world)))))) for case in MATRIX}
    assert said == set(get_args(Statement))


def test_every_privilege_that_is_not_about_tables_lets_somebody_say_something() -> None:
    taken = {each for case in MATRIX for each in case.privileges}
    assert taken == set(EVERY) - {Privilege.SELECT, Privilege.INSERT, Privilege.UPDATE, Privilege.DELETE}
    assert CREATE in taken


def test_the_page_about_security_shows_the_table() -> None:
    begin, end = "<!-- who may say what: tests/sql/matrix.py -->\n\n", "\n\n<!-- end -->"
    page = PAGE.read_text(encoding="utf-8")
    assert begin in page
    assert page.partition(begin)[2].partition(end)[0] == page_table(), "print(page_table()) and paste it there"


def test_a_refused_one_is_no_login_failure(peopled: Stage) -> None:
    with pytest.raises(AccessDenied) as told:
        peopled.sql("ALTER SYSTEM SET scheduler.catch_up = ALL", "nobody")
    assert not isinstance(told.value, LoginFailed)
    assert peopled.sql("SELECT count(*) FROM sys.settings WHERE setting_name = 'scheduler.catch_up'")[0] == (0,)
