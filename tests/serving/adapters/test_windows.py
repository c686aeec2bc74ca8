"""Laws of windows and of the memory of residencies, for jobs of no particular scheduler."""

import itertools
import math
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from interfere.serving.adapters.windows import (
    GUARD_S,
    Place,
    Residencies,
    Residency,
    Run,
    WindowRules,
    colocation_windows,
)

NOW = 10_000.0
RULES = WindowRules(report_every_s=60.0, least_window_s=5.0, lookback_s=900.0, settle_s=3.0)


@dataclass(frozen=True)
class PlainJob:
    """A job of a scheduler that restarts none."""

    id: str
    workload: str

    @property
    def run_id(self) -> str:
        return self.id

    @property
    def history_id(self) -> str:
        return self.id


def run(
    name: str, start_s: float, end_s: float = math.inf, *devices: str, **others: tuple[Place, ...]
) -> Run[PlainJob]:
    places = tuple(map(Place, devices))
    return Run(job=PlainJob(name, f"w{name}"), start_s=start_s, end_s=end_s, places=places, **others)


def seen(*rounds: tuple[float, list[Run[PlainJob]]]) -> dict[tuple[str, str], Residency[PlainJob]]:
    """The residencies after some rounds, by job and device."""
    residencies = Residencies[PlainJob](RULES.lookback_s)
    for now_s, runs in rounds:
        residencies.see(runs, now_s)
    return {(residency.job.id, residency.place.device_id): residency for residency in residencies.all()}


spans = st.lists(
    st.tuples(st.integers(0, 800), st.integers(1, 400), st.sampled_from(["d0", "d1"]), st.booleans()), max_size=6
)


@given(spans)
def test_the_company_of_a_window_is_all_of_it_and_constant(chosen: list[tuple[int, int, str, bool]]) -> None:
    begin_s = NOW - 850.0
    residencies = [
        Residency(
            job=PlainJob(str(k), f"w{k}"),
            place=Place(device),
            start_s=begin_s + start,
            end_s=begin_s + start + length,
            is_certain=is_certain,
        )
        for k, (start, length, device, is_certain) in enumerate(chosen)
        if begin_s + start < NOW
    ]
    last_end_s: dict[str, float] = {}
    for window in colocation_windows(residencies, RULES, NOW):
        job = window.residency.job.id
        assert window.residency.start_s <= window.start_s < window.end_s <= min(window.residency.end_s, NOW)
        assert window.start_s >= last_end_s.get(job, -math.inf), "windows of one residency follow each other"
        last_end_s[job] = window.end_s
        others = [each for each in residencies if each.place == window.residency.place and each.job.id != job]
        beside = [each for each in others if each.start_s < window.end_s and each.end_s > window.start_s]
        assert list(window.company) == beside
        assert all(each.is_certain for each in (window.residency, *beside)), "nobody says who was where"
        assert all(each.start_s <= window.start_s and each.end_s >= window.end_s for each in beside)
        edges_s = [time_s for each in others for time_s in (each.start_s, each.end_s)]
        assert not any(window.start_s - GUARD_S < time_s < window.end_s + GUARD_S for time_s in edges_s)


def test_a_short_job_is_measured_at_every_second_of_the_minute() -> None:
    """A job that met the whole minute in its middle was cut into two parts that were both too short to count."""
    for start, length_s in itertools.product(range(60), range(8, 40)):
        begin_s = NOW - 400.0 + start
        whole = Residency(job=PlainJob("a", "wa"), place=Place("d"), start_s=begin_s, end_s=begin_s + length_s)
        windows = colocation_windows([whole], RULES, NOW)
        assert max(each.end_s - each.start_s for each in windows) >= RULES.least_window_s, (start, length_s)


def test_the_device_of_an_ended_run_is_that_of_an_earlier_round_else_the_noted_one() -> None:
    noted = (Place("noted"),)
    ended = run("a", NOW - 50, NOW - 10, noted_places=noted)
    remembered = seen((NOW - 20, [run("a", NOW - 50, math.inf, "d0")]), (NOW, [ended]))
    assert {key: residency.end_s for key, residency in remembered.items()} == {("a", "d0"): NOW - 10}
    assert set(seen((NOW, [ended]))) == {("a", "noted")}


def test_a_run_of_unknown_device_makes_every_possible_device_uncertain() -> None:
    possible = (Place("d0"), Place("d1"))
    found = seen((NOW, [run("a", NOW - 50, NOW - 10, possible_places=possible), run("b", NOW - 60, math.inf, "d1")]))
    assert {key: residency.workload for key, residency in found.items()} == {
        ("a", "d0"): "",
        ("a", "d1"): "",
        ("b", "d1"): "wb",
    }
    (window,) = colocation_windows(
        [residency for residency in found.values() if residency.job.id == "b"] + [found["a", "d1"]], RULES, NOW
    )
    assert window.end_s <= NOW - 50, "only what was before is known"


def test_a_run_that_vanishes_ended_then_and_is_forgotten_when_no_window_is_left_of_it() -> None:
    vanished = seen((NOW - 20, [run("a", NOW - 50, math.inf, "d0")]), (NOW, []))
    assert vanished["a", "d0"].end_s == NOW
    later = seen((NOW - 20, [run("a", NOW - 50, math.inf, "d0")]), (NOW, []), (NOW + RULES.lookback_s, []))
    assert later == {}
