"""Suggested windows: they help, are borne by their jobs, and come from a second rehearsal rather than a promise."""

from __future__ import annotations

import tomllib
from datetime import timedelta

from tests.simulate.acting import part, played, span

from horae.core.window.window import Window
from horae.formats.toml.job_file import read_job_file
from horae.simulate.draws import DrawOptions
from horae.simulate.jobs import SimulatedJobs
from horae.simulate.simulate import play
from horae.simulate.suggestions import with_windows


def test_a_pile_of_jobs_is_flattened_and_the_figures_are_those_of_a_second_rehearsal() -> None:
    cast = SimulatedJobs(tuple(part(f"pile-{number:02}", seconds=120) for number in range(40)))
    result = play(cast, span("6h"), DrawOptions())
    found = result.suggestion
    assert found is not None
    assert found.peak.before == result.load.peak == 40
    again = play(with_windows(cast, found.windows), span("6h"), DrawOptions(), suggest=False)
    assert found.peak.after == again.load.peak <= 20
    assert found.busiest.after == again.load.busiest < 40
    assert {window.length for window in found.windows.values()} <= {timedelta(minutes=each) for each in (5, 10, 15)}
    assert set(again.states) == {"COMPLETED"}


def test_where_slots_are_short_windows_take_the_wait_away() -> None:
    result = played(*(part(f"pile-{number:02}", seconds=60) for number in range(30)), slots=10, suggest=True)
    found = result.suggestion
    assert found is not None
    assert (result.load.peak, result.room.longest) == (10, 120)
    assert found.longest_wait.before == 120
    assert found.longest_wait.after < 60


def test_a_window_is_at_most_a_quarter_of_the_time_between_slots_and_of_the_deadline() -> None:
    jobs = [part(f"often-{number}", "*/10 * * * *", 30) for number in range(10)]
    jobs += [part(f"soon-{number}", "0 * * * *", 30, deadline="5m") for number in range(10)]
    found = played(*jobs, length="3h", suggest=True).suggestion
    assert found is not None
    longest = {
        kind: max(window.length for name, window in found.windows.items() if name.startswith(kind))
        for kind in ("often", "soon")
    }
    assert longest["often"] <= timedelta(minutes=2.5)
    assert longest["soon"] <= timedelta(minutes=1.25)


def test_jobs_that_have_a_window_or_that_others_wait_for_closely_are_left_alone() -> None:
    own = Window.after("1m")
    jobs = [part(f"own-{number}", seconds=60, window=own) for number in range(10)]
    jobs += [part(f"up-{number}", "*/20 * * * *", 280) for number in range(10)]
    jobs += [part(f"down-{number}", "*/20 * * * *", 60, depends_on=[f"up-{number}"]) for number in range(10)]
    found = played(*jobs, length="3h", suggest=True).suggestion
    assert found is None or not any(name.startswith(("own", "up")) for name in found.windows)


def test_nothing_is_suggested_where_nothing_piles_up() -> None:
    assert (
        played(*(part(f"job-{minute}", f"{minute} * * * *", 30) for minute in range(9)), suggest=True).suggestion
        is None
    )
    assert played(part("alone", seconds=60), part("other", seconds=60), suggest=True).suggestion is None


def test_only_the_jobs_of_a_pile_are_given_windows() -> None:
    jobs = [part(f"pile-{number:02}", seconds=60) for number in range(20)]
    jobs += [part(f"pair-{number}", "30 * * * *", 60) for number in range(2)]
    found = played(*jobs, suggest=True).suggestion
    assert found is not None
    assert all(name.startswith("pile") for name in found.windows)


def test_the_toml_to_paste_is_read_back_to_those_windows() -> None:
    names = ['a "quoted" [name]', "with = sign", "plain", *(f"pile-{number}" for number in range(9))]
    found = played(*(part(name, seconds=60) for name in names), suggest=True).suggestion
    assert found is not None
    tables = tomllib.loads(found.toml())["jobs"]
    assert set(tables) == set(found.windows)
    whole = found.toml().replace("window =", "cron = '0 * * * *'\npython = 'shop.work'\nwindow =")
    read = {spec.name: spec.settings["window"] for spec in read_job_file(whole, file="jobs.toml").jobs}
    assert read == dict(found.windows)
