"""The configuration: one frozen record, read from a TOML file and the environment; whatever is absent has its default.

    [external]            programs for EXTERNAL jobs: off until `enabled`
    [connections.name]    url: a database that SQL jobs reach by ON CONNECTION name
    [secrets]             where the master key is: key_file, key_environment or key_command; older_key_files
    [scheduler]           limits and intervals of the node
    [server]              where `horae serve` listens, what it runs, which requests it accepts

The variable HORAE_SECTION_KEY sets the key of that section and wins over the file; HORAE_CONNECTION_NAME is the url of
a connection. An unknown key, or a value of the wrong type, raises InvalidConfiguration with its place. Urls and
variables may hold passwords, so neither appears in a repr or an error.
"""

from horae.config.loader import (
    EXTERNAL,
    FILE,
    FILE_VARIABLE,
    KEY_VARIABLE,
    Configuration,
    ConnectionSettings,
    KeySources,
    load_configuration,
    parse_configuration,
)
from horae.config.server import Address, ServerSettings, parse_address, server_keys
from horae.config.values import ValueSource

__all__ = [
    "EXTERNAL",
    "FILE",
    "FILE_VARIABLE",
    "KEY_VARIABLE",
    "Address",
    "Configuration",
    "ConnectionSettings",
    "KeySources",
    "ServerSettings",
    "ValueSource",
    "load_configuration",
    "parse_address",
    "parse_configuration",
    "server_keys",
]
