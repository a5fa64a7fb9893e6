"""`horae __complete KIND PREFIX`: prints the names that a shell's Tab offers, one a line, and no errors.

The user waits for it at every Tab, so it imports as little as it can. It reads names from an SQLite file with
`sqlite3`, and from a server with `http.client`. Only other stores are opened as other commands open them.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

from horae.cli import files

MOST = 200
"""How many names are offered at most."""
_SECONDS = 1.0
_TABLES = {
    "jobs": ("SELECT job_name FROM jobs WHERE {0} ORDER BY job_name", "job_name"),
    "runs": ("SELECT 'occ_' || job_run_uuid FROM job_runs WHERE {0} ORDER BY run_no DESC", "'occ_' || job_run_uuid"),
    "users": ("SELECT user_name FROM users WHERE {0} ORDER BY user_name", "user_name"),
    "roles": ("SELECT role_name FROM roles WHERE {0} ORDER BY role_name", "role_name"),
    "secrets": ("SELECT DISTINCT secret_name FROM secrets WHERE {0} ORDER BY 1", "secret_name"),
    "tokens": (
        "SELECT token_uuid FROM tokens WHERE revoked_at IS NULL AND {0} ORDER BY created_at DESC",
        "token_uuid",
    ),
}
_PATHS = {
    "jobs": ("/jobs", "jobs", "name"),
    "runs": ("/runs", "runs", "run_id"),
    "users": ("/users", "users", "name"),
    "roles": ("/roles", "roles", "name"),
    "secrets": ("/secrets", "secrets", "name"),
    "tokens": ("/tokens", "tokens", "token_id"),
}
_OPERATIONS = {
    "jobs": "list_jobs",
    "runs": "list_runs",
    "users": "users",
    "roles": "roles",
    "secrets": "secrets",
    "tokens": "tokens",
}
_OPTIONS = {"--store": "store", "--server": "server", "--token-file": "token_file"}


def print_names(words: Sequence[str]) -> int:
    """Prints the names and returns the exit code. On any error it prints no message, since it would appear in the
    middle of the user's line."""
    try:
        kind, prefix, *options = words
        arguments = _read(options)
        for each in ("users", "roles") if kind == "people" else (kind,):
            names = _names(each, prefix, arguments)
            for name in list(dict.fromkeys(name for name in names if name.startswith(prefix)))[:MOST]:
                if name.isprintable():
                    sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
    except Exception:  # noqa: BLE001 - no error may print a message, see the docstring
        return 1
    return 0


def _read(options: Sequence[str]) -> Namespace:
    found: dict[str, Any] = dict.fromkeys(_OPTIONS.values())
    left = list(options)
    while left:
        name, has_value, value = left.pop(0).partition("=")
        found[_OPTIONS[name]] = value if has_value else left.pop(0)
    return Namespace(**found)


def _names(kind: str, prefix: str, arguments: Namespace) -> Iterable[str]:
    server = files.server_url(arguments)
    if server is not None:
        return _of_server(kind, prefix, server, files.server_token(arguments))
    url = files.store_url(arguments)
    path = url.removeprefix("sqlite:///")
    return _of_file(kind, prefix, path) if path != url else _of_store(kind, prefix, url)


def _of_file(kind: str, prefix: str, path: str) -> list[str]:
    import sqlite3
    from pathlib import Path

    query, column = _TABLES[kind]
    text = query.format(f"substr({column}, 1, {len(prefix)}) = ?")
    # Opened read-only, so that a missing file is not created.
    connection = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True, timeout=_SECONDS)
    try:
        return [str(row[0]) for row in connection.execute(f"{text} LIMIT {MOST}", (prefix,))]
    finally:
        connection.close()


def _of_server(kind: str, prefix: str, url: str, token: str | None) -> list[str]:
    import json
    from http.client import HTTPConnection, HTTPSConnection

    path, field, key = _PATHS[kind]
    query = {"search": prefix, "limit": 1000} if kind == "jobs" else {"limit": MOST} if kind == "runs" else {}
    if not prefix:
        query.pop("search", None)
    address = urlsplit(url)
    if token and address.scheme != "https" and not _is_near(address.hostname or ""):
        return []  # the token could be read on the way; the command itself reports that
    make = HTTPSConnection if address.scheme == "https" else HTTPConnection
    connection = make(address.hostname or "", address.port, timeout=_SECONDS)
    try:
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        connection.request(
            "GET", f"{address.path.rstrip('/')}/api/v1{path}{'?' if query else ''}{urlencode(query)}", headers=headers
        )
        answer = connection.getresponse()
        if answer.status != 200:
            return []
        return [str(each[key]) for each in json.loads(answer.read())[field]]
    finally:
        connection.close()


def _is_near(host: str) -> bool:
    from ipaddress import ip_address

    if files.is_on(files.INSECURE) or host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False  # a name such as 127.example.com may be anywhere


def _of_store(kind: str, prefix: str, url: str) -> list[str]:
    from horae.cli.catalog_access import LocalCatalog

    catalog = LocalCatalog(url, None)
    try:
        asked: dict[str, Any] = {"search": prefix or None, "limit": 1000} if kind == "jobs" else {}
        _, field, key = _PATHS[kind]
        return [getattr(each, key) for each in getattr(catalog.call(_OPERATIONS[kind], **asked), field)]
    finally:
        catalog.close()
