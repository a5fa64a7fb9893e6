"""The door every surface goes through, and whom a job runs as: every missing right is named, and written down."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.security.vaults import Job, MemoryVault

from horae.core.access import LOCAL, LOCAL_NAME, Grant, OwnerRequirements, Principal, Privilege, missing_to_run, quoted
from horae.core.job.definition import JobSpec, TaskSpec
from horae.core.schedule.schedules import Cron
from horae.errors import AccessDenied, IdentityRevoked, JobNotFound
from horae.security.access import AccessChecker, check_secret, identity
from horae.store.protocols.people import Identity
from horae.store.protocols.reads import VersionRecord
from horae.store.protocols.store import JobRecord

P = Privilege
CREATE, EXTERNAL = Grant(P.CREATE_JOB), Grant(P.EXECUTE_EXTERNAL_JOB)
PLAIN = (TaskSpec("a", "SELECT 1", "SQL"),)
RICH = (
    TaskSpec("a", "/bin/true", "EXTERNAL", options={"secrets": [{"name": "own"}, {"name": "shared"}]}),
    TaskSpec("b", "SELECT 1", "SQL", options={"connection": "warehouse"}),
)
ALL = (CREATE, EXTERNAL, Grant(P.USE_SECRET, "shared"), Grant(P.USE_CONNECTION, "warehouse"))


def spec(tasks: tuple[TaskSpec, ...] = PLAIN, owner: str | None = "alice", run_as: str | None = None) -> JobSpec:
    return JobSpec("nightly", Cron("0 2 * * *"), tasks, owner=owner, run_as=run_as)


def kept(tasks: tuple[TaskSpec, ...] = PLAIN, owner: str = "alice") -> JobRecord:
    """The job as the catalog has it: with its owner beside the definition."""
    return Job("nightly", owner, spec(tasks)).record


def vault_with(*grants: Grant, roles: tuple[str, ...] = (), **flags: bool) -> MemoryVault:
    """Alice with these grants; a shared secret, and one that is the job's own; a role of reporters."""
    vault = MemoryVault(roles_kept={"reporters": frozenset({Grant(P.SELECT, "sales")})})
    vault.add_user("alice", *grants, roles=roles, **flags)
    vault.put("shared", b"", "")
    vault.put("own", b"", "", "nightly")
    vault.jobs_kept["nightly"] = Job("nightly", "alice")
    return vault


def gate(vault: MemoryVault, name: str = "alice") -> AccessChecker:
    return AccessChecker(vault.kept, vault.people[name])


def refused(call: Coroutine[Any, Any, None]) -> AccessDenied:
    with pytest.raises(AccessDenied) as error:
        asyncio.run(call)
    return error.value


# ---- the gate --------------------------------------------------------------------------------------------------------


def test_who_holds_it_is_let_pass_and_nothing_is_written() -> None:
    vault = vault_with(Grant(P.EXECUTE_JOB, "nightly"))
    asyncio.run(gate(vault).require(P.EXECUTE_JOB, "nightly", owner="bob"))
    asyncio.run(gate(vault).require(P.ALTER_JOB, "nightly", owner="alice"))
    assert gate(vault).holds(P.EXECUTE_JOB, "nightly")
    assert not gate(vault).holds(P.EXECUTE_JOB, "other")
    assert vault.rows == []


def test_a_refusal_says_who_and_what_is_missing_and_how_to_get_it_and_is_written_down() -> None:
    vault = vault_with()
    error = refused(gate(vault).require(P.EXECUTE_JOB, "nightly", owner="bob", action="run it"))
    assert str(error) == 'Job "nightly": "alice" may not run it: EXECUTE JOB ON JOB nightly is missing'
    assert error.hint == "An administrator can give it: GRANT EXECUTE JOB ON JOB nightly TO alice"
    (row,) = vault.rows
    assert (row.event, row.actor, row.outcome) == ("ACCESS_DENIED", "alice", "REFUSED")
    assert row.job_uuid is not None
    assert json.loads(row.details or "") == {
        "user": "alice",
        "privilege": "EXECUTE JOB",
        "name": "nightly",
        "action": "run it",
    }


def test_a_privilege_that_is_on_nothing_is_asked_for_without_an_object() -> None:
    error = refused(gate(vault_with()).require(P.CREATE_JOB, action='create the job "x"'))
    assert str(error) == '"alice" may not create the job "x": CREATE JOB is missing'
    assert error.hint == "An administrator can give it: GRANT CREATE JOB TO alice"


def test_a_disabled_user_is_refused_even_what_is_theirs_and_told_why() -> None:
    vault = vault_with(CREATE, is_enabled=False, is_admin=True)
    assert not gate(vault).is_open
    error = refused(gate(vault).require(P.ALTER_JOB, "nightly", owner="alice", action="change it"))
    assert "the user is disabled" in str(error)
    refused(gate(vault).require_admin("list users"))
    refused(gate(vault).require_owner("nightly", "set its secret"))


def test_only_administrators_pass_where_only_they_may() -> None:
    vault = vault_with(*ALL)
    error = refused(gate(vault).require_admin("list users"))
    assert str(error) == '"alice" may not list users: only administrators may'
    assert vault.events() == ["ACCESS_DENIED"]
    asyncio.run(AccessChecker(vault.kept, LOCAL).require_admin("list users"))
    assert AccessChecker(vault.kept, LOCAL).is_open


def test_only_the_owner_and_administrators_pass_where_no_grant_does() -> None:
    vault = vault_with()
    vault.add_user("bob", *(Grant(each) for each in P))
    asyncio.run(gate(vault).require_owner("nightly", "set its secret"))
    asyncio.run(AccessChecker(vault.kept, LOCAL).require_owner("none", "set its secret"))
    error = refused(gate(vault, "bob").require_owner("nightly", "set its secret"))
    assert "only its owner and administrators may" in str(error)
    with pytest.raises(JobNotFound):
        asyncio.run(gate(vault).require_owner("none", "set its secret"))


def test_a_refusal_whose_row_was_undone_is_written_again() -> None:
    vault = vault_with()
    error = refused(gate(vault).require(P.DROP_JOB, "nightly", owner="bob", action="drop it"))
    before = vault.rows.pop()
    asyncio.run(gate(vault).note_refusal(error))
    assert vault.rows == [before]


# ---- making and changing jobs ----------------------------------------------------------------------------------------


def test_whoever_holds_what_the_work_needs_may_make_the_job() -> None:
    vault = vault_with(*ALL, roles=("reporters",))
    asyncio.run(gate(vault).define(spec(RICH, run_as="reporters"), None))
    asyncio.run(gate(vault_with(CREATE)).define(spec(owner=None), None))
    assert vault.rows == []


NEEDED = {
    "CREATE JOB": (CREATE, "GRANT CREATE JOB TO alice"),
    "EXECUTE EXTERNAL JOB": (EXTERNAL, "GRANT EXECUTE EXTERNAL JOB TO alice"),
    "USE SECRET ON SECRET shared": (ALL[2], "GRANT USE SECRET ON SECRET shared TO alice"),
    "USE CONNECTION ON CONNECTION warehouse": (ALL[3], "GRANT USE CONNECTION ON CONNECTION warehouse TO alice"),
}


@pytest.mark.parametrize("missing", NEEDED)
def test_each_right_that_is_missing_refuses_the_making_and_stops_the_running(missing: str) -> None:
    without, remedy = NEEDED[missing]
    vault = vault_with(*(grant for grant in ALL if grant != without))
    error = refused(gate(vault).define(spec(RICH), None))
    assert missing in str(error)
    assert remedy in (error.hint or "")
    assert vault.events() == ["ACCESS_DENIED"]
    with pytest.raises(IdentityRevoked) as revoked:
        asyncio.run(identity(vault.kept, spec(RICH), RICH[0]))
    assert str(revoked.value) == f'Task "a" of job "nightly" may not run any more: "alice" does not hold {missing}'
    assert revoked.value.hint == remedy


def test_everything_that_is_missing_is_named_at_once() -> None:
    with pytest.raises(IdentityRevoked) as error:
        asyncio.run(identity(vault_with().kept, spec(RICH, run_as="reporters"), RICH[0]))
    assert str(error.value).count("does not hold") == 4
    assert "is no member of the role reporters" in str(error.value)


def test_a_role_takes_membership_both_to_be_named_and_to_be_run_as() -> None:
    vault = vault_with(CREATE)
    error = refused(gate(vault).define(spec(run_as="reporters"), None))
    assert "is no member of the role reporters" in str(error)
    assert "GRANT reporters TO alice" in (error.hint or "")
    error = refused(gate(vault).define(spec(run_as="ghosts"), None))
    assert "there is no such role" in str(error)


def test_a_job_cannot_be_made_for_somebody_else_nor_given_away() -> None:
    vault = vault_with(CREATE)
    assert "give the job" in str(refused(gate(vault).define(spec(owner="bob"), None)))
    assert "give the job" in str(refused(gate(vault).define(spec(owner="bob"), kept())))
    assert "give the job" in str(refused(gate(vault).define(spec(owner=LOCAL_NAME), None)))


def test_who_may_alter_and_run_anothers_job_may_move_it_but_not_change_what_it_does() -> None:
    vault = vault_with(*ALL)
    vault.add_user("bob", *ALL, Grant(P.ALTER_JOB, "nightly"), Grant(P.EXECUTE_JOB, "nightly"))
    other = JobSpec("nightly", Cron("0 3 * * *"), RICH, owner="alice")
    asyncio.run(gate(vault, "bob").define(other, kept(RICH)))
    for changed in (spec(RICH), spec((TaskSpec("a", "SELECT 2", "SQL"),)), spec(run_as="reporters")):
        error = refused(gate(vault, "bob").define(changed, kept()))
        assert '"bob" may not change what it does: only its owner and administrators may' in str(error)


def test_another_users_job_cannot_be_altered_without_a_grant_and_locals_neither() -> None:
    vault = vault_with(*ALL)
    vault.add_user("bob", *ALL)
    assert "ALTER JOB ON JOB nightly is missing" in str(refused(gate(vault, "bob").define(spec(), kept())))
    assert "ALTER JOB" in str(refused(gate(vault).define(spec(), kept(owner="local"))))


def test_an_administrator_may_define_anything() -> None:
    asyncio.run(AccessChecker(MemoryVault().kept, LOCAL).define(spec(RICH, owner="bob", run_as="ghosts"), None))


@pytest.mark.parametrize(("owner", "is_theirs"), [("alice", True), ("bob", False), (None, False)])
def test_the_name_of_a_dropped_job_is_free_for_its_last_owner_alone(owner: str | None, is_theirs: bool) -> None:
    vault = vault_with(CREATE)
    del vault.jobs_kept["nightly"]
    said = spec(owner=owner).to_dict()
    vault.versions_kept["nightly"] = [VersionRecord(3, said, "sql", "alice", None, datetime(2026, 1, 1, tzinfo=UTC))]
    if is_theirs:
        asyncio.run(gate(vault).define(spec(), None))
        return
    error = refused(gate(vault).define(spec(), None))
    assert "somebody else's" in str(error)
    assert "ask an administrator" in str(error.hint)
    assert vault.events() == ["ACCESS_DENIED"]
    asyncio.run(AccessChecker(vault.kept, LOCAL).define(spec(), None))


def test_a_secret_that_is_not_there_yet_may_be_named_since_it_may_become_the_jobs_own() -> None:
    vault = vault_with(CREATE, EXTERNAL, ALL[3])
    del vault.secrets_kept["shared", None]
    asyncio.run(gate(vault).define(spec(RICH), None))


# ---- whom a job runs as ----------------------------------------------------------------------------------------------


def test_a_job_runs_as_its_owner_with_the_rights_of_their_roles() -> None:
    vault = vault_with(CREATE, roles=("reporters",))
    found = asyncio.run(identity(vault.kept, spec(), PLAIN[0], variables={"job_name": "nightly"}))
    assert found == Identity(
        "alice", grants=frozenset({CREATE, Grant(P.SELECT, "sales")}), variables={"job_name": "nightly"}
    )


def test_a_job_with_a_role_runs_with_that_roles_rights_alone() -> None:
    vault = vault_with(CREATE, Grant(P.DELETE, "sales"), roles=("reporters",))
    found = asyncio.run(identity(vault.kept, spec(run_as="reporters"), PLAIN[0]))
    assert found == Identity("reporters", is_role=True, grants=frozenset({Grant(P.SELECT, "sales")}))


def test_an_administrators_job_with_a_role_is_no_administrators() -> None:
    vault = vault_with(is_admin=True)
    assert asyncio.run(identity(vault.kept, spec(), PLAIN[0])).is_admin
    assert not asyncio.run(identity(vault.kept, spec(run_as="reporters"), PLAIN[0])).is_admin


def test_locals_jobs_run_even_where_the_store_has_no_such_user() -> None:
    assert asyncio.run(identity(MemoryVault().kept, spec(owner=None), PLAIN[0])) == Identity("local", is_admin=True)


def test_a_run_has_the_rights_of_whose_text_it_has_whoever_owns_the_job_by_now() -> None:
    vault = vault_with(CREATE)
    vault.jobs_kept["nightly"] = Job("nightly", LOCAL_NAME)
    found = asyncio.run(identity(vault.kept, spec(owner="alice"), PLAIN[0]))
    assert (found.name, found.is_admin) == ("alice", False)
    with pytest.raises(AccessDenied, match="USE SECRET ON SECRET shared is missing"):
        asyncio.run(check_secret(vault.kept, spec(owner="alice"), "shared"))


def test_a_job_of_somebody_who_is_gone_or_disabled_does_not_run() -> None:
    for vault, reason in (
        (MemoryVault(jobs_kept={"nightly": Job("nightly", "alice")}), '"alice" is no user any more'),
        (vault_with(*ALL, is_enabled=False), '"alice" is disabled'),
        (vault_with(is_admin=True, is_enabled=False), '"alice" is disabled'),
    ):
        with pytest.raises(IdentityRevoked, match="may not run any more") as error:
            asyncio.run(identity(vault.kept, spec(), PLAIN[0]))
        assert str(error.value).endswith(f": {reason}")
        assert error.value.hint


def test_a_dropped_role_stops_even_an_administrators_job() -> None:
    with pytest.raises(IdentityRevoked, match="there is no such role"):
        asyncio.run(identity(vault_with(is_admin=True).kept, spec(run_as="ghosts"), PLAIN[0]))


def test_a_shared_secret_is_for_jobs_of_those_who_may_use_it() -> None:
    asyncio.run(check_secret(vault_with(ALL[2]).kept, spec(), "shared"))
    asyncio.run(check_secret(MemoryVault().kept, spec(owner=None), "shared"))
    for vault in (vault_with(), vault_with(ALL[2], is_enabled=False), MemoryVault()):
        with pytest.raises(AccessDenied, match="USE SECRET ON SECRET shared is missing"):
            asyncio.run(check_secret(vault.kept, spec(), "shared"))
        assert vault.events() == ["ACCESS_DENIED"]


# ---- the rule itself -------------------------------------------------------------------------------------------------


def test_a_grant_on_all_of_a_kind_is_as_good_as_one_on_each() -> None:
    everything = Principal("a", LOCAL.uuid, grants=frozenset(Grant(each) for each in P), roles=frozenset({"r"}))
    needs = OwnerRequirements("r", external=True, secrets=("x", "y"), connections=("z",))
    assert missing_to_run(everything, "a", needs, roles=frozenset({"r"})) == ()
    assert missing_to_run(LOCAL, "local", needs, roles=frozenset({"r"})) == ()


@pytest.mark.parametrize(
    ("name", "written"),
    [("alice", "alice"), ("Alice", '"Alice"'), ("a b", '"a b"'), ('a"; DROP', '"a""; DROP"'), ("é", '"é"')],
)
def test_names_in_remedies_are_quoted_where_they_are_no_plain_words(name: str, written: str) -> None:
    assert quoted(name) == written
    vault = MemoryVault()
    vault.add_user(name)
    assert (refused(gate(vault, name).require(P.CREATE_JOB)).hint or "").endswith(f"TO {written}")
