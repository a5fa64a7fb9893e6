"""[server]: what it says, in which order places count, and what is refused with its place."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from horae.cli.commands.serve import server_settings
from horae.config import (
    Address,
    Configuration,
    ServerSettings,
    ValueSource,
    load_configuration,
    parse_address,
    parse_configuration,
    server_keys,
)
from horae.errors import InvalidConfiguration

HERE = ValueSource("the command line", "--http")
NOTHING = {
    "http": None,
    "http_only": None,
    "share_port": None,
    "store": None,
    "node": None,
    "slots": None,
    "log_format": None,
    "log_level": None,
}


def flags(*, serves: bool = True, **given: Any) -> Namespace:
    return Namespace(**{**NOTHING, "grace_period": None, "serves": serves, **given})


def test_everything_that_can_be_said_is_read() -> None:
    text = """
[server]
http = "0.0.0.0:9000"
store = "postgresql://horae:hunter2000@db/horae"
node = "front"
slots = 8
targets = ["shop:app", "jobs.toml", "/etc/other.kron"]
hosts = ["horae.example.com"]
proxies = ["10.0.0.7", "::1"]
http_only = true
share_port = true
secure = true
tls_certificate = "server.pem"
tls_key = "/keys/server.key"
session_length = "1h"
body_limit = "2MiB"
rate = 5
burst = 10
viewers = 7
logins = 3
connections_per_address = 9
undecided = "1m"
grace_period = 90
log_format = "json"
log_level = "debug"
"""
    configuration = parse_configuration(text, source="/etc/horae/horae.toml")
    settings = configuration.server
    assert settings == ServerSettings(
        Address("0.0.0.0", 9000),  # noqa: S104 - what the text says; nothing is bound
        "postgresql://horae:hunter2000@db/horae",
        "front",
        8,
        ("shop:app", "/etc/horae/jobs.toml", "/etc/other.kron"),
        ("horae.example.com",),
        ("10.0.0.7", "::1"),
        http_only=True,
        share_port=True,
        secure=True,
        tls_certificate="/etc/horae/server.pem",
        tls_key="/keys/server.key",
        session_length=3600.0,
        body_limit=2 << 20,
        rate=5.0,
        burst=10,
        viewers=7,
        logins=3,
        connections_per_address=9,
        undecided=60.0,
        grace_period=90.0,
        log_format="json",
        log_level="debug",
    )
    assert {attribute for attribute, _ in server_keys(Path()).values()} == {
        each.name for each in fields(ServerSettings)
    }
    assert "hunter2000" not in repr(configuration)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8421", "127.0.0.1", 8421),
        ("[::1]:80", "::1", 80),
        (":9000", "127.0.0.1", 9000),
        ("9000", "127.0.0.1", 9000),
        (9000, "127.0.0.1", 9000),
        ("horae.example:0", "horae.example", 0),
    ],
)
def test_an_address_is_a_host_and_a_port(text: Any, host: str, port: int) -> None:
    assert parse_address(text, HERE) == Address(host, port)
    assert parse_address(str(Address(host, port)), HERE) == Address(host, port)


def test_a_socket_and_nothing_are_addresses_too() -> None:
    assert parse_address("unix:/run/horae.sock", HERE).path == "/run/horae.sock"
    assert parse_address("off", HERE).is_off
    assert str(Address()) == "off"
    assert str(Address(path="/a")) == "unix:/a"


@pytest.mark.parametrize(
    "text", ["", "localhost", "::1:80", "a:b", "a:99999", "a:-1", "http://a:80", "unix:", None, True]
)
def test_what_is_no_address_is_refused_with_its_place(text: Any) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        parse_address(text, HERE)
    assert "the command line: --http" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port = 80", "port in [server] is not known"),
        ('http = "nowhere"', "http in [server] has no port"),
        ("slots = 0", "slots in [server] must be a whole number from 1"),
        ('store = "mysql://hunter2000@db"', "store in [server] must be a url that begins with"),
        ('node = "a/b\\n"', "node in [server] is no name"),
        ('hosts = ["https://a"]', "which is no host name"),
        ('proxies = ["10.0.0.0/8"]', "which is no address"),
        ('session_length = "0s"', "must be longer than nothing"),
        ('log_format = "xml"', "log_format in [server] must be one of text, json"),
        ("rate = -1", "rate in [server] must be a number above 0"),
    ],
)
def test_a_fault_is_told_with_its_place_and_without_a_password(text: str, said: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        parse_configuration(f"[server]\n{text}")
    assert said in str(caught.value)
    assert str(caught.value).startswith("horae.toml: ")
    assert "hunter2000" not in str(caught.value)


def test_flags_win_over_variables_those_over_the_file_and_that_over_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "horae.toml"
    file.write_text('[server]\nslots = 3\nnode = "of-file"\nhttp = "127.0.0.1:1"\nlog_level = "error"\n')
    environment = {"HORAE_SERVER_NODE": "of-variable", "HORAE_SERVER_HTTP": "127.0.0.1:2"}
    configuration = load_configuration(file, environment)
    monkeypatch.delenv("HORAE_STORE", raising=False)
    settings = server_settings(flags(http="127.0.0.1:3"), configuration)
    assert (settings.http.port, settings.node, settings.slots, settings.log_level) == (3, "of-variable", 3, "error")
    assert settings.log_format == "text"


def test_a_variable_has_lists_with_spaces_or_commas_since_targets_have_colons() -> None:
    environment = {
        "HORAE_SERVER_TARGETS": "shop.jobs:app,/etc/jobs.toml other:app",
        "HORAE_SERVER_PROXIES": "::1 10.0.0.7",
        "HORAE_SERVER_RATE": "2.5",
        "HORAE_SERVER_SLOTS": "4",
        "HORAE_SERVER_SECURE": "true",
    }
    settings = parse_configuration("", environment=environment).server
    assert settings.targets == ("shop.jobs:app", "/etc/jobs.toml", "other:app")
    assert settings.proxies == ("::1", "10.0.0.7")
    assert (settings.rate, settings.slots, settings.secure) == (2.5, 4, True)


def test_variables_of_others_that_look_alike_are_left_alone() -> None:
    environment = {
        "HORAE_SERVER": "http://127.0.0.1:8421",
        "HORAE_TOKEN": "horae_x",
        "HORAE_SERVER_PORT": "tcp://10.0.0.1:8421",
        "HORAE_SERVER_PORT_8421_TCP": "tcp://10.0.0.1:8421",
        "HORAE_SERVER_SERVICE_HOST": "10.0.0.1",
    }
    assert parse_configuration("", environment=environment).server == ServerSettings()
    with pytest.raises(InvalidConfiguration, match="HORAE_SERVER_PORTS is not known"):
        parse_configuration("", environment={"HORAE_SERVER_PORTS": "80"})


def test_the_store_of_every_command_is_the_servers_unless_it_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORAE_STORE", "sqlite:///general.db")
    own = Configuration(server=ServerSettings(store="sqlite:///own.db"))
    assert server_settings(flags(), Configuration()).store == "sqlite:///general.db"
    assert server_settings(flags(), own).store == "sqlite:///own.db"
    assert server_settings(flags(store="sqlite:///said.db"), own).store == "sqlite:///said.db"


def test_a_worker_listens_nowhere_whatever_the_file_says() -> None:
    assert server_settings(flags(serves=False), Configuration()).http.is_off
    assert not server_settings(flags(), Configuration()).http.is_off
