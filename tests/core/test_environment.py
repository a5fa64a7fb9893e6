"""Which variables a job may give a program: names that are allowed, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.program.environment import (
    CODE_LOADING_NAMES,
    SETTABLE_BY_JOBS,
    checked_pattern,
    denial,
    inherited_names,
)
from horae.errors import InvalidDefinition

# As text: a name a line would take 150 lines.
DANGEROUS = """
    LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT DYLD_INSERT_LIBRARIES GCONV_PATH LOCPATH NLSPATH GLIBC_TUNABLES MALLOC_CHECK_
    GETCONF_DIR TZDIR HOSTALIASES RES_OPTIONS LOCALDOMAIN PATH IFS ENV CDPATH PS4 SHELL SHELLOPTS BASHOPTS BASH_ENV
    ZDOTDIR HOME XDG_CONFIG_HOME XDG_DATA_DIRS TMPDIR INPUTRC PYTHONPATH PYTHONSTARTUP PYTHONHOME PYTHONINSPECT
    PYTHONWARNINGS PYTHONBREAKPOINT PERL5LIB PERL5OPT PERLLIB PERL5DB RUBYLIB RUBYOPT GEM_PATH BUNDLE_GEMFILE
    NODE_OPTIONS NODE_PATH NPM_CONFIG_PREFIX npm_config_script_shell PHPRC PHP_INI_SCAN_DIR LUA_PATH LUA_INIT TCLLIBPATH
    JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS CLASSPATH MAVEN_OPTS R_PROFILE JULIA_LOAD_PATH GOFLAGS CARGO_HOME
    RUSTC_WRAPPER DOTNET_STARTUP_HOOKS CORECLR_PROFILER COMPlus_AltJit MONO_PATH ERL_FLAGS AWKPATH EMACSLOADPATH VIMINIT
    EXINIT OPENSSL_CONF OPENSSL_MODULES OPENSSL_ENGINES SSLKEYLOGFILE SSL_CERT_FILE P11_KIT_CONFIG KRB5_CONFIG SASL_PATH
    ODBCINI GIO_EXTRA_MODULES GTK_MODULES GTK_PATH QT_PLUGIN_PATH GST_PLUGIN_PATH MAGICK_CODER_MODULE_PATH GIT_SSH
    GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_CONFIG_COUNT GIT_EXEC_PATH HGRCPATH SVN_SSH CVS_RSH SSH_ASKPASS RSYNC_RSH
    RSYNC_CONNECT_PROG TAR_OPTIONS LESSOPEN LESSCLOSE PAGER MANPAGER EDITOR VISUAL BROWSER SUDO_ASKPASS CURL_HOME WGETRC
    GNUPGHOME PGSERVICEFILE PGSYSCONFDIR PGPASSFILE PSQLRC MYSQL_HOME LIBMYSQL_PLUGINS TNS_ADMIN DOCKER_HOST KUBECONFIG
    ANSIBLE_CONFIG MAKEFLAGS CC COMPILER_PATH TERMINFO TERMCAP MAILRC LISTEN_FDS NOTIFY_SOCKET DBUS_SESSION_BUS_ADDRESS
""".split()  # noqa: SIM905 - as above


@pytest.mark.parametrize("name", DANGEROUS)
def test_what_loads_code_is_allowed_by_its_very_name_alone(name: str) -> None:
    for listed in ((), (f"{name[:1]}*",), (f"{name}*",), ("JOB_*",)):
        refused = denial(name, "x", listed)
        assert refused is not None, listed
        assert name in refused.message
        assert "[external]" in refused.hint
        assert inherited_names([name], listed) == []
    assert denial(name, "x", (name,)) is None
    assert denial(name, "x", (), (name,)) is None
    assert inherited_names([name], (name,)) == [name]


@given(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True))
def test_a_name_that_nobody_thought_of_is_refused(name: str) -> None:
    free = name.startswith(("JOB_", "LC_")) or name in ("LANG", "LANGUAGE", "TZ")
    assert (denial(name, "x", ()) is None) == free


def test_every_job_may_set_its_own_names_and_the_language_and_zone_it_speaks() -> None:
    values = {"JOB_LEVEL": "a/b\n../c", "LANG": "de_DE.UTF-8", "LANGUAGE": "de:en", "LC_ALL": "sr_RS@latin"}
    zones = ("Europe/Berlin", ":America/New_York", "CET-1CEST,M3.5.0,M10.5.0/3", "<+07>-7", "UTC", "")
    assert all(denial(name, value, ()) is None for name, value in values.items())
    assert all(denial("TZ", value, ()) is None for value in zones)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LANGUAGE", "../../srv/evil"),
        ("LC_ALL", "/srv/evil"),
        ("LANG", "a b"),
        ("TZ", "/srv/evil"),
        ("TZ", ":/srv/evil"),
        ("TZ", "a/../../srv/evil"),
        ("JOB_A", "a\0b"),
        ("LANG", "a\n"),
    ],
)
def test_a_value_that_could_name_a_file_to_the_c_library_is_refused_and_not_told(name: str, value: str) -> None:
    refused = denial(name, value, (name,))
    assert refused is not None
    assert name in refused.message
    assert value not in refused.message + refused.hint


def test_nothing_that_every_job_may_set_is_among_what_loads_code() -> None:
    assert all(denial(each.replace("*", "A"), "x", ()) is None for each in SETTABLE_BY_JOBS)
    assert not set(SETTABLE_BY_JOBS) & set(CODE_LOADING_NAMES)


@pytest.mark.parametrize("pattern", ["*", "*_A", "", "1*", "A?", "A[B]", "A B", "HORAE_*", "HORAE_MASTER_KEY", 7, None])
def test_a_pattern_that_begins_with_no_name_or_means_ours_is_refused(pattern: object) -> None:
    with pytest.raises(InvalidDefinition):
        checked_pattern(pattern)


def test_a_pattern_allows_what_begins_as_it_does() -> None:
    assert denial("APP_MODE", "x", ("APP_*",)) is None
    assert denial("APPLE", "x", ("APP_*",)) is not None
    assert denial("app_mode", "x", ("APP_*",)) is not None
    assert inherited_names(["APP_A", "APPLE", "B"], ("APP_*", "B")) == ["APP_A", "B"]
