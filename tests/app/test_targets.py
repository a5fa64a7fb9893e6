"""Targets: apps by their names, job files, krontabs and folders; files are read again, and faults change nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae import Horae
from horae.app.process.targets import LoadedTargets, ReloadResult, load_targets
from horae.config import Configuration
from horae.errors import HoraeError, InvalidDefinition, InvalidFile, InvalidInput, InvalidJobFile, InvalidPolicy

APP = """
from horae import Every, Horae

app = Horae("sqlite:///of-the-code.db", node="code")
other = 3

@app.job("coded", Every("1h"))
def coded(): ...

def make():
    return Horae("sqlite://", namespace="made")

def with_argument(what): ...

def fails():
    raise RuntimeError("no licence")

def ends():
    raise SystemExit(4)

class Holder:
    app = app
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder that is worked in; what is imported from it is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def job(name: str, more: str = "") -> str:
    return f'[jobs.{name}]\nevery = "1h"\nsql = "SELECT 1"\n{more}\n'


def names(loaded: LoadedTargets) -> list[str]:
    return sorted(spec.name for spec in loaded.app.specs())


def reloaded(loaded: LoadedTargets) -> ReloadResult:
    async def main() -> ReloadResult:
        try:
            return await loaded.reload()
        finally:
            await loaded.app.close()

    return asyncio.run(main())


def test_an_app_is_found_in_a_module_of_the_working_directory(here: Path) -> None:
    (here / "shop.py").write_text(APP)
    loaded = load_targets(["shop:app"])
    assert (names(loaded), loaded.app.url, loaded.app.node) == (["coded"], "sqlite:///of-the-code.db", "code")
    assert load_targets(["shop:make"]).app.namespace == "made"
    assert load_targets(["shop:Holder.app"]).app is loaded.app


def test_what_is_given_besides_stands_over_the_code(here: Path) -> None:
    (here / "shop.py").write_text(APP)
    (here / "jobs.toml").write_text(job("filed"))
    configuration = Configuration(scheduler={"modules": ["shop"]})
    loaded = load_targets(
        ["shop:app", "jobs.toml"],
        store="sqlite:///mine.db",
        node="mine",
        slots=7,
        grace_period=3.0,
        configuration=configuration,
    )
    app = loaded.app
    assert (app.url, app.node, app.slots, app.grace_period) == ("sqlite:///mine.db", "mine", 7, 3.0)
    assert (app.configuration, app.tuning.modules) == (configuration, ("shop",))
    assert names(loaded) == ["coded", "filed"]
    with pytest.raises(InvalidPolicy, match="max_concurrent_jobs"):
        load_targets([], slots=0)
    with pytest.raises(InvalidInput, match="unknown kind"):
        load_targets([], store="mysql://x")


def test_without_an_app_there_is_a_plain_one(here: Path) -> None:
    (here / "jobs.toml").write_text(job("a"))
    (here / "more.kron").write_text("0 2 * * * name=b command=/bin/true\n")
    loaded = load_targets(["jobs.toml", "more.kron"], store="sqlite:///x.db")
    assert (names(loaded), loaded.app.url) == (["a", "b"], "sqlite:///x.db")
    assert load_targets([]).app.url == "sqlite:///horae.db"
    assert loaded.files == (Path("jobs.toml"), Path("more.kron"))


def test_of_a_folder_every_job_file_is_read_once_and_in_order(here: Path) -> None:
    folder = here / "jobs"
    (folder / "deeper").mkdir(parents=True)
    for name in ("b", "a"):
        (folder / f"{name}.toml").write_text(job(name))
    (folder / "c.kron").write_text("0 2 * * * name=c command=/bin/true\n")
    for name in ("horae.toml", "pyproject.toml", ".hidden.toml", "notes.txt", "deeper/d.toml"):
        (folder / name).write_text("not = 'jobs'\n")
    loaded = load_targets(["jobs", "jobs/a.toml", str(folder / "a.toml")])
    assert [file.name for file in loaded.files] == ["a.toml", "b.toml", "c.kron"]


TARGETS: list[tuple[list[str], type[HoraeError], str, str]] = [
    (["shop"], InvalidInput, '"shop" is not a target', "A target is module:app"),
    (["notes.txt"], InvalidInput, '"notes.txt" is not a target', "ends in neither .toml, .kron nor .sql"),
    (["sho p:app"], InvalidInput, "is not a target", ""),
    (["shop:app", "shop:make"], InvalidInput, "Two apps are to be run", "another process"),
    (["nowhere:app"], InvalidInput, "there is no module nowhere", "It is looked for here"),
    (["shop.inner:app"], InvalidInput, "there is no module shop.inner", ""),
    (["shop:ap"], InvalidInput, "there is no ap in shop", "There is: shop:app."),
    (["shop:other"], InvalidInput, 'is "3", and not an app', "app = Horae"),
    (["shop:with_argument"], InvalidInput, "failed: TypeError", "without arguments"),
    (["shop:fails"], InvalidInput, "failed: RuntimeError: no licence", ""),
    (["broken:app"], InvalidDefinition, "cannot be imported: ZeroDivisionError: division by zero", ""),
    (
        ["ends:app"],
        InvalidDefinition,
        "cannot be imported: module ends called sys.exit(3)",
        'if __name__ == "__main__"',
    ),
    (["shop:ends"], InvalidInput, "called to make the app, failed: it called sys.exit(4)", "returns a Horae"),
    (["lacking:app"], InvalidDefinition, "No module named 'a_module_nobody_has'", ""),
    (["twice:app"], InvalidDefinition, 'Job "a" is defined twice', ""),
    (["nothing.toml"], InvalidFile, "nothing.toml: cannot be read: No such file", ""),
    (["empty"], InvalidFile, "empty: there are no job files in it", ".toml or .kron"),
    (["horae.toml"], InvalidFile, "is not a job file", "jobs.toml"),
    (["bad.toml"], InvalidJobFile, "bad.toml:1: jbs: there is no such key", "Did you mean jobs?"),
    (["a.toml", "b.toml"], InvalidDefinition, 'Job "a" of b.toml is defined also by a.toml', "another name"),
]


@pytest.mark.parametrize(("targets", "kind", "reason", "hint"), TARGETS, ids=[" ".join(each[0]) for each in TARGETS])
def test_what_is_no_target_is_refused_with_the_reason(
    here: Path, targets: list[str], kind: type[HoraeError], reason: str, hint: str
) -> None:
    (here / "shop.py").write_text(APP)
    (here / "broken.py").write_text("1 / 0\n")
    (here / "ends.py").write_text("import sys\nsys.exit(3)\n")
    (here / "lacking.py").write_text("import a_module_nobody_has\n")
    (here / "twice.py").write_text(
        "from horae import Every, Horae\napp = Horae('sqlite://')\napp.job('a', Every(9))\napp.job('a', Every(9))\n"
    )
    (here / "empty").mkdir()
    (here / "notes.txt").touch()
    (here / "bad.toml").write_text("[jbs.x]\n")
    for name in ("a", "b"):
        (here / f"{name}.toml").write_text(job("a"))
    with pytest.raises(kind) as refused:
        load_targets(targets)
    assert type(refused.value) is kind
    assert reason in str(refused.value)
    assert hint in (refused.value.hint or "")


def test_files_are_read_again_and_only_what_changed_changes(here: Path) -> None:
    (here / "jobs").mkdir()
    one, two = here / "jobs" / "one.toml", here / "jobs" / "two.toml"
    one.write_text(job("a") + job("b"))
    loaded = load_targets(["jobs"], store="sqlite:///x.db")
    assert reloaded(loaded) == ReloadResult(created=("a", "b"))
    assert reloaded(loaded) == ReloadResult(unchanged=("a", "b"))
    one.write_text(job("a", 'description = "new"'))
    two.write_text(job("c", 'depends_on = ["a"]'))
    assert reloaded(loaded) == ReloadResult(created=("c",), changed=("a",), gone=("b",))
    assert [file.name for file in loaded.files] == ["one.toml", "two.toml"]
    two.unlink()
    assert reloaded(loaded) == ReloadResult(unchanged=("a",), gone=("c",))
    assert names(loaded) == ["a"]

    async def left() -> list[str]:
        try:
            return [each.name for each in await loaded.app.jobs()]
        finally:
            await loaded.app.close()

    assert asyncio.run(left()) == ["a", "b", "c"]


def test_a_fault_in_a_file_changes_nothing_and_is_told(here: Path) -> None:
    file = here / "jobs.toml"
    file.write_text(job("a"))
    loaded = load_targets(["jobs.toml"], store="sqlite:///x.db")
    reloaded(loaded)
    for text, reason in (
        (job("a", "description = 3") + job("b"), "jobs.toml:4: jobs.a.description: must be text"),
        (job("b", 'depends_on = ["nowhere"]') + job("c"), 'depends on "nowhere", which does not exist'),
        (job("b", 'pool = "nowhere"') + job("c"), 'wants the pool "nowhere", which does not exist'),
    ):
        file.write_text(text)
        refused = reloaded(loaded)
        assert refused.error is not None
        assert reason in str(refused.error)
        assert (refused.created, refused.changed, refused.gone) == ((), (), ())
        assert names(loaded) == ["a"]
    file.write_text(job("a"))
    assert reloaded(loaded) == ReloadResult(unchanged=("a",))


def test_a_file_that_everybody_may_write_is_not_taken_and_one_for_its_group_is(here: Path) -> None:
    (here / "shop.py").write_text(APP + "\napp.job_file('own.toml')\n")
    own, file = here / "own.toml", here / "jobs.toml"
    own.write_text(job("a"))
    file.write_text(job("b"))
    (here / "old.kron").write_text("")
    refused = r"own\.toml: everybody on this machine may write the job file \(mode 0666\)"
    for each in (own, file, here / "old.kron"):
        each.chmod(0o666)
    with pytest.raises(InvalidFile, match=refused) as told:
        Horae("sqlite://").job_file("own.toml")
    assert told.value.hint == "Run: chmod o-w own.toml"
    with pytest.raises(InvalidFile, match=r"jobs\.toml: everybody"):
        load_targets(["jobs.toml"], store="sqlite:///x.db")
    with pytest.raises(InvalidFile, match=r"old\.kron: everybody"):
        Horae("sqlite://").krontab("old.kron")
    for each in (own, file):
        each.chmod(0o664)
    loaded = load_targets(["shop:app", "jobs.toml"], store="sqlite:///x.db")
    reloaded(loaded)
    file.write_text(job("c"))
    file.chmod(0o666)
    answered = reloaded(loaded)
    assert "everybody on this machine may write" in str(answered.error)
    assert (answered.created, answered.gone) == ((), ())


def test_a_file_that_the_code_names_is_read_again_too(here: Path) -> None:
    (here / "shop.py").write_text(APP + "\napp.job_file('own.toml')\n")
    (here / "own.toml").write_text(job("a"))
    (here / "jobs.toml").write_text(job("b"))
    loaded = load_targets(["shop:app", "jobs.toml"], store="sqlite:///x.db")
    assert names(loaded) == ["a", "b", "coded"]
    (here / "own.toml").write_text(job("a") + job("a2"))
    assert reloaded(loaded) == ReloadResult(created=("a", "a2", "b"))
    (here / "jobs.toml").write_text(job("coded"))
    refused = reloaded(loaded)
    assert 'Job "coded" of jobs.toml is defined also by the code' in str(refused.error)
