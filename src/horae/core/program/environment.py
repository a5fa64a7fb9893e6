"""The environment variables that a program may have: allowed names, and every other name is denied.

A job may set names that no program takes for an instruction: those that begin with JOB_, the language and the time
zone. The configuration may allow more, by name or by a pattern such as APP_*. A name that decides which code a program
loads or starts must be in the configuration by its full name: no pattern matches it. The list of such names (LOADERS)
cannot be complete, so it never decides alone what a job may set.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from horae.core.job.options import checked_variable
from horae.errors import InvalidDefinition

SETTABLE_BY_JOBS = ("JOB_*", "LANG", "LANGUAGE", "LC_*", "TZ")
"""The names that every job may set. The C library reads all but JOB_*, so their values are checked, too."""
CODE_LOADING_NAMES = (
    # the dynamic loader, the C library and what it loads
    *("LD_*", "DYLD_*", "GCONV_PATH", "LOCPATH", "NLSPATH", "GLIBC_TUNABLES", "MALLOC_*", "GETCONF_DIR", "TZDIR"),
    *("HOSTALIASES", "RES_OPTIONS", "RESOLV_*", "LOCALDOMAIN", "NIS_PATH"),
    # shells, and variables by which programs find other programs and their settings
    *("PATH", "IFS", "ENV", "CDPATH", "GLOBIGNORE", "PS4", "SHELL", "SHELLOPTS", "BASHOPTS", "BASH_*", "KSH_*"),
    *("ZDOTDIR", "FPATH", "HOME", "XDG_*", "TMPDIR", "INPUTRC", "PROMPT_COMMAND"),
    # languages
    *("PYTHON*", "PERL*", "RUBY*", "GEM_*", "BUNDLE_*", "NODE_*", "NPM_*", "npm_*", "DENO_*", "PHP*", "LUA_*", "TCL*"),
    *("JAVA_*", "_JAVA_OPTIONS", "JDK_*", "CLASSPATH", "MAVEN_*", "GRADLE_*", "SCALA_*", "KOTLIN_*", "GUILE_*", "R_*"),
    *("JULIA_*", "GO*", "CARGO_*", "RUST*", "DOTNET_*", "CORECLR_*", "COMPlus_*", "MONO_*", "ERL_*", "ELIXIR_*"),
    *("AWKPATH", "AWKLIBPATH", "GAWK_*", "EMACS*", "VIM*", "EXINIT", "OCAML*", "CAML_*", "GHC*", "VIRTUAL_ENV"),
    # libraries that load modules
    *("OPENSSL_*", "SSLKEYLOGFILE", "SSL_*", "P11_KIT_*", "NSS_*", "KRB5*", "SASL_*", "LDAP*", "ODBC*", "GIO_*"),
    *("GTK_*", "GDK_*", "QT_*", "QML*", "GST_*", "GSETTINGS_*", "FONTCONFIG_*", "MAGICK_*", "OCL_*", "VK_*", "CUDA_*"),
    # programs that start others, or read instructions from variables
    *("GIT_*", "HG*", "SVN_*", "CVS_*", "SSH_*", "RSYNC_*", "TAR_OPTIONS", "GZIP", "XZ_*", "ZSTD_*", "UNZIP", "ZIPOPT"),
    *("LESS*", "MORE", "PAGER", "MANPAGER", "MANOPT", "EDITOR", "VISUAL", "FCEDIT", "BROWSER", "SUDO_*", "DISPLAY"),
    *("CURL_*", "WGETRC", "SYSTEM_WGETRC", "GNUPGHOME", "GPG_*", "PG*", "PSQL*", "MYSQL*", "LIBMYSQL_*", "SQLITE_*"),
    *("ORACLE_*", "TNS_ADMIN", "DOCKER_*", "KUBECONFIG", "KUBECTL_*", "HELM_*", "AWS_CONFIG_FILE", "ANSIBLE_*"),
    *("TERRAFORM_*", "TF_*", "MAKE*", "MFLAGS", "CMAKE_*", "CC", "CXX", "CPP", "LDFLAGS", "CFLAGS", "GCC_*"),
    *("COMPILER_PATH", "LIBRARY_PATH", "TERMINFO*", "TERMCAP", "MAILRC", "MAIL", "SCREENRC", "TMUX*", "SYSTEMD_*"),
    *("DBUS_*", "NOTIFY_SOCKET", "LISTEN_*"),
)
"""Names that decide which code a program loads or starts, or where it finds the files that decide it."""
RESERVED = "HORAE_"
"""The prefix of the names that only Horae sets."""
_LANGUAGE = re.compile(r"[A-Za-z0-9_.@:,-]*")
_ZONE = re.compile(r"[A-Za-z0-9_+<>,.:/-]*")


class Denial(NamedTuple):
    """Why a job may not set a variable, and what to do about it."""

    message: str
    hint: str


def denial(name: str, value: str, listed: Collection[str], fixed: Collection[str] = ()) -> Denial | None:
    """Why a job may not set the variable `name` to `value`; None where it may.

    `listed` are the names and patterns that the configuration allows, `fixed` the names to which it gives values
    itself. The message never contains the value.
    """
    try:
        checked_variable(name)
    except InvalidDefinition as error:
        return Denial(error.message, error.hint or "")
    if "\0" in value:
        return Denial(f"The value of the environment variable {name} has a NUL character", "Take it out.")
    if name.startswith(RESERVED):
        return Denial(f"The environment variable {name} cannot be set: names with {RESERVED} are ours", "Rename it.")
    if not _is_harmless(name, value):
        return Denial(
            f"The environment variable {name} cannot be set to such a value by a job: it could name a file",
            "Give it the plain name of a language or of a time zone.",
        )
    if name in listed or name in fixed:
        return None
    if _LOADERS.fullmatch(name):
        return Denial(
            f"The environment variable {name} cannot be set by a job: it decides which code a program loads or starts",
            f"Only the configuration of the node can allow it: list {name} in environment under [external], with this "
            "very name (patterns do not reach it), or give it a value under variables.",
        )
    if _any(name, listed) or _FREE.fullmatch(name):
        return None
    return Denial(
        f"The environment variable {name} cannot be set by a job: it is not allowed on this node",
        f"Call it JOB_{name}, which every job may set, or list {name} in environment under [external] in the "
        "configuration of the node.",
    )


def inherited_names(names: Iterable[str], listed: Collection[str]) -> list[str]:
    """The names of the node's own variables that its programs get."""
    return [
        name
        for name in names
        if not name.startswith(RESERVED) and (name in listed or (_any(name, listed) and not _LOADERS.fullmatch(name)))
    ]


def checked_pattern(pattern: object) -> str:
    """Returns a name, or a pattern in which * stands for any letters, digits and _. Raises InvalidDefinition."""
    text = pattern if isinstance(pattern, str) else ""
    checked_variable(text.replace("*", "_") if not text.startswith("*") else "")
    if text.startswith(RESERVED):
        raise InvalidDefinition(f"names with {RESERVED} are Horae's own, and no program gets them")
    return text


def _is_harmless(name: str, value: str) -> bool:
    if name == "TZ":
        return bool(_ZONE.fullmatch(value)) and ".." not in value and not value.lstrip(":").startswith("/")
    return not _LOCALE.fullmatch(name) or _LANGUAGE.fullmatch(value) is not None


def _any(name: str, patterns: Collection[str]) -> bool:
    return any("*" in each and _matching((each,)).fullmatch(name) for each in patterns)


def _matching(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(each).replace(r"\*", "[A-Za-z0-9_]*") for each in patterns))


_FREE = _matching(SETTABLE_BY_JOBS)
_LOADERS = _matching(CODE_LOADING_NAMES)
_LOCALE = _matching(("LANG", "LANGUAGE", "LC_*"))
