"""The configuration: what it says, where it comes from, and errors that name the place and never a password."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from horae.config import (
    EXTERNAL,
    Configuration,
    ConnectionSettings,
    KeySources,
    load_configuration,
    parse_configuration,
)
from horae.core.program.policy import ExternalPolicy, Sandbox
from horae.errors import InvalidConfiguration

WHOLE = """
[external]
enabled = true
commands = ["/usr/bin/rsync"]
directories = ["/opt/jobs"]
working_directory = "/var/lib/horae"
environment = ["LANG", "HOME"]
variables = { REGION = "eu", PASSWORD = "hunter2000" }
output_limit = "256KiB"
cpu_seconds = "10m"
memory = "1.5 GiB"
open_files = 64
processes = 32
file_size = "10MB"
time_limit = "1h30m"
grace = 5
user = "nobody"
group = "nogroup"
shell = true
sandbox = "namespaces"

[connections.warehouse]
url = "postgresql://etl:hunter2000@db.example:5432/dw?sslpassword=hunter2001"

[secrets]
key_file = "keys/master.key"
older_key_files = ["keys/2025.key", "/etc/horae/2024.key"]

[scheduler]
heartbeat = "3s"
plan_batch = 100
"""


def test_everything_that_can_be_said_is_read(tmp_path: Path) -> None:
    file = tmp_path / "horae.toml"
    file.write_text(WHOLE)
    found = load_configuration(file, {})
    assert found.external == ExternalPolicy(
        enabled=True,
        commands=("/usr/bin/rsync",),
        directories=("/opt/jobs",),
        working_directory="/var/lib/horae",
        environment=("LANG", "HOME"),
        variables={"REGION": "eu", "PASSWORD": "hunter2000"},
        output_limit=256 * 1024,
        cpu_seconds=600,
        memory=3 * 1024**3 // 2,
        open_files=64,
        processes=32,
        file_size=10_000_000,
        time_limit=5400.0,
        grace=5.0,
        user="nobody",
        group="nogroup",
        allow_shell=True,
        sandbox=Sandbox.NAMESPACES,
    )
    assert found.connections["warehouse"].url.startswith("postgresql://etl:hunter2000@")
    older = (f"{tmp_path}/keys/2025.key", "/etc/horae/2024.key")
    assert found.secrets == KeySources(key_file=f"{tmp_path}/keys/master.key", older_key_files=older)
    assert found.scheduler == {"heartbeat": "3s", "plan_batch": 100}
    assert found.source == str(file)


def test_every_field_of_the_policy_can_be_set_but_what_is_found_on_the_machine() -> None:
    assert {attribute for attribute, _ in EXTERNAL.values()} == {each.name for each in fields(ExternalPolicy)} - {"own"}


def test_without_a_file_there_are_defaults_and_external_jobs_are_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = load_configuration(environment={})
    assert found == Configuration()
    assert not found.external.enabled
    assert not found.external.allow_shell


def test_the_file_is_the_one_given_or_named_or_found_in_that_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("given", "named", "horae"):
        (tmp_path / f"{name}.toml").write_text(f'[scheduler]\nfrom = "{name}"')
    environment = {"HORAE_CONFIG": "named.toml"}
    assert load_configuration("given.toml", environment).scheduler["from"] == "given"
    assert load_configuration(environment=environment).scheduler["from"] == "named"
    assert load_configuration(environment={}).scheduler["from"] == "horae"
    assert load_configuration(environment={"HORAE_CONFIG": ""}).scheduler["from"] == "horae"


def test_a_file_that_is_named_must_be_there_and_be_toml(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="No such file"):
        load_configuration(environment={"HORAE_CONFIG": str(tmp_path / "none.toml")})
    with pytest.raises(InvalidConfiguration, match="cannot be read"):
        load_configuration(tmp_path, {})
    for content, reason in ((b"\xff", "not UTF-8"), (b"[external", "not TOML"), (b"#" * 2_000_000, "larger than")):
        file = tmp_path / "bad.toml"
        file.write_bytes(content)
        with pytest.raises(InvalidConfiguration, match=reason) as error:
            load_configuration(file, {})
        assert str(file) in str(error.value)


FAULTS = [
    ("[exterminal]", "[exterminal] is not known"),
    ("external = 1", "[external] must be a section"),
    ("[external]\nenable = true", "enable in [external] is not known"),
    ("[external]\nenabled = 1", 'enabled in [external] must be true or false, not "1"'),
    ('[external]\nenabled = "yes"', 'enabled in [external] must be true or false, not "yes"'),
    ("[external]\nenabled = true", "[external] is enabled and allows nothing"),
    ('[external]\ncommands = "/bin/ls"', "commands in [external] must be a list"),
    ('[external]\ncommands = ["ls"]', 'commands in [external] must be an absolute path, not "ls"'),
    ("[external]\ncommands = [1]", 'commands in [external] must be text, not "1"'),
    ('[external]\ndirectories = ["/opt/../etc"]', 'Invalid directories "/opt/../etc": must not go up by ..'),
    ('[external]\nworking_directory = "jobs"', "working_directory in [external] must be an absolute path"),
    ('[external]\nenvironment = ["A B"]', 'Invalid environment "A B": must be the name of an environment variable'),
    ("[external]\nvariables = { A = 1 }", "variables in [external] must map variables to text"),
    ('[external]\nvariables = { "A-B" = "x" }', 'Invalid variables "A-B"'),
    ('[external]\noutput_limit = "64 parsecs"', 'output_limit in [external] must be a size, not "64 parsecs"'),
    ("[external]\noutput_limit = 0", 'output_limit in [external] must be a size, not "0"'),
    ('[external]\noutput_limit = "none"', 'output_limit in [external] must be a size, not "none"'),
    ("[external]\nmemory = 1.5", 'memory in [external] must be a size, not "1.5"'),
    ("[external]\nopen_files = 0", 'open_files in [external] must be a whole number from 1, not "0"'),
    ("[external]\nprocesses = true", "processes in [external] must be a whole number from 1"),
    ('[external]\ncpu_seconds = "1500ms"', "cpu_seconds in [external] must be a duration of whole seconds"),
    ('[external]\ntime_limit = "soon"', 'time_limit in [external] must be a duration, not "soon"'),
    ("[external]\ngrace = -1", "grace in [external] must be a duration"),
    ('[external]\nuser = ""', "user in [external] must be text"),
    ('[external]\nsandbox = "auto"', 'Invalid sandbox "auto": must be one of namespaces, user, none'),
    ('[external]\nsandbox = "user"', 'Invalid sandbox "user": needs the user that programs run as'),
    ('[external]\nsandbox = "none"\nnamespaces = "auto"', "[external] says both sandbox and namespaces"),
    ('[external]\nnamespaces = "some"', 'Invalid namespaces "some": must be one of auto, always, never'),
    ("connections = 1", "[connections] must have a section for each"),
    ('[connections]\nwarehouse = "postgres://a:hunter2@b/c"', "[connections.warehouse] must be a section with a url"),
    ("[connections.warehouse]", "[connections.warehouse] has no url"),
    ('[connections.w]\nurl = "hunter2"', "url in [connections.w] must be a url that begins with sqlite://"),
    ('[connections.w]\nurl = "mysql://a:hunter2@b"', "url in [connections.w] must be a url that begins with"),
    ('[connections.w]\nurl = "sqlite:///x"\npassword = "hunter2"', "password in [connections.w] is not known"),
    ('[connections." w"]\nurl = "sqlite:///x"', "[connections. w] has no name that is one"),
    ("[secrets]\nkey_file = 1", 'key_file in [secrets] must be text, not "1"'),
    ('[secrets]\nkey_command = ""', "key_command in [secrets] must be a command"),
    ("[secrets]\nkey_command = '''it's'''", "key_command in [secrets] must be a command"),
    ('[secrets]\nkey_file = "a"\nkey_environment = "B"', "[secrets] names several master keys"),
    ('[secrets]\nkey = "hunter2"', "key in [secrets] is not known"),
]


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_a_fault_is_told_with_file_key_and_what_is_expected_and_without_any_secret(text: str, message: str) -> None:
    with pytest.raises(InvalidConfiguration) as error:
        parse_configuration(text, source="/etc/horae.toml")
    assert str(error.value).startswith("/etc/horae.toml: ")
    assert message in str(error.value)
    assert "hunter2" not in json.dumps(error.value.to_dict())
    assert error.value.__cause__ is None


def test_unknown_keys_are_answered_with_the_known_ones() -> None:
    with pytest.raises(InvalidConfiguration) as error:
        parse_configuration("[external]\nallow = true")
    assert "commands" in (error.value.hint or "")


def test_a_limit_is_taken_away_by_none() -> None:
    names = ("cpu_seconds", "memory", "open_files", "processes", "file_size", "time_limit")
    found = parse_configuration("[external]\n" + "\n".join(f'{name} = "none"' for name in names))
    assert [getattr(found.external, name) for name in names] == [None] * 6


def test_the_environment_wins_over_the_file() -> None:
    environment = {
        "HORAE_EXTERNAL_ENABLED": "true",
        "HORAE_EXTERNAL_COMMANDS": "/bin/a:/bin/b",
        "HORAE_EXTERNAL_MEMORY": "1GiB",
        "HORAE_EXTERNAL_OPEN_FILES": "12",
        "HORAE_EXTERNAL_PROCESSES": "none",
        "HORAE_EXTERNAL_GRACE": "3",
        "HORAE_CONNECTION_WAREHOUSE": "sqlite:///w.db",
        "HORAE_SECRETS_OLDER_KEY_FILES": "/a:/b",
        "HORAE_SCHEDULER_PLAN_BATCH": "7",
        "HORAE_SCHEDULER_TEE": "false",
        "HORAE_SCHEDULER_HEARTBEAT": "2s",
        "HORAE_SCHEDULER_MODULES": "mine:yours",
        "HORAE_STORE": "sqlite:///horae.db",
    }
    text = '[external]\nmemory = "2GiB"\n[connections.warehouse]\nurl = "postgres://x/y"\n[scheduler]\nplan_batch = 1'
    found = parse_configuration(text, environment=environment)
    assert found.external == ExternalPolicy(
        enabled=True, commands=("/bin/a", "/bin/b"), memory=1024**3, open_files=12, processes=None, grace=3.0
    )
    assert found.connections == {"warehouse": ConnectionSettings("warehouse", "sqlite:///w.db")}
    assert found.secrets.older_key_files == ("/a", "/b")
    assert found.scheduler == {"plan_batch": 7, "tee": False, "heartbeat": "2s", "modules": ["mine", "yours"]}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HORAE_EXTERNAL_ENABLE", "true"),
        ("HORAE_EXTERNAL_ENABLED", "hunter"),
        ("HORAE_CONNECTION_W", "hunter2"),
        ("HORAE_CONNECTION_", "sqlite:///x"),
        ("HORAE_SECRETS_KEY", "hunter2"),
    ],
)
def test_a_fault_in_the_environment_names_the_variable(variable: str, value: str) -> None:
    with pytest.raises(InvalidConfiguration, match=f"the environment: {variable} ") as error:
        parse_configuration("", environment={variable: value})
    assert "hunter2" not in str(error.value)


def test_the_master_key_may_simply_be_in_its_variable_unless_a_source_is_named() -> None:
    environment = {"HORAE_MASTER_KEY": "anything"}
    assert parse_configuration("", environment=environment).secrets == KeySources(key_environment="HORAE_MASTER_KEY")
    named = parse_configuration('[secrets]\nkey_command = "pass show horae"', environment=environment).secrets
    assert named == KeySources(key_command=("pass", "show", "horae"))
    assert parse_configuration('[secrets]\nkey_command = ["pass", "a b"]').secrets.key_command == ("pass", "a b")


def test_neither_a_connection_nor_a_configuration_shows_a_password() -> None:
    found = parse_configuration(WHOLE)
    assert "hunter2000@" not in repr(found)
    assert "hunter2001" not in repr(found)
    assert found.connections["warehouse"].shown_url == "postgresql://db.example:5432/dw"
    assert ConnectionSettings("x", "sqlite:///a@b.db").shown_url.startswith("sqlite://")


def test_variables_for_programs_do_not_show_either() -> None:
    assert "hunter2000" not in repr(parse_configuration(WHOLE).external)


def test_a_configuration_that_still_says_namespaces_is_read_and_told_what_to_write(
    caplog: pytest.LogCaptureFixture,
) -> None:
    meant = {"auto": "namespaces", "always": "namespaces", "never": "none"}
    for said, sandbox in meant.items():
        caplog.clear()
        assert parse_configuration(f'[external]\nnamespaces = "{said}"').external.sandbox == sandbox
        assert f'namespaces = "{said}" in [external] is now sandbox = "{sandbox}"' in caplog.text
    assert parse_configuration('[external]\nnamespaces = "never"\nuser = "jobs"').external.sandbox == "user"
