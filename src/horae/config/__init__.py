"""The configuration: one frozen record, from a TOML file and the environment. Absent is whatever the defaults are.

    [external]            programs for EXTERNAL jobs: off until `enabled`
    [connections.name]    url: a database that SQL jobs reach by ON CONNECTION name
    [secrets]             where the master key is: key_file, key_environment or key_command; older_key_files
    [scheduler]           limits and rhythms of the node
    [server]              where `horae serve` listens, what it runs, whom it lets in

A variable HORAE_SECTION_KEY stands for the key of that section, and wins over the file; HORAE_CONNECTION_NAME is the
url of a connection. Whatever is not known, or of the wrong kind, is refused with its place. Urls and variables may hold
passwords: neither shows in a repr or an error.
"""

from horae.config.loading import (
    EXTERNAL,
    FILE,
    FILE_VARIABLE,
    KEY_VARIABLE,
    Configuration,
    Connection,
    KeySources,
    load_configuration,
    parse_configuration,
)
from horae.config.server import Address, ServerSettings, parse_address, server_keys
from horae.config.values import Place

__all__ = [
    "EXTERNAL",
    "FILE",
    "FILE_VARIABLE",
    "KEY_VARIABLE",
    "Address",
    "Configuration",
    "Connection",
    "KeySources",
    "Place",
    "ServerSettings",
    "load_configuration",
    "parse_address",
    "parse_configuration",
    "server_keys",
]
