"""The transfer to a device type with few pairs: its laws, on devices made by a rule, and its errors."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.data.tables import Table
from interfere.errors import UnfitError
from interfere.predict.transfer.pair_belief import PairBelief, fit_transfer
from interfere.predict.transfer.process import to_excess_scale, to_slowdown
from interfere.records import JobProfile, PairMeasurement, PairStatus

NAMES = tuple(f"job{k}" for k in range(12))
SUFFERS = np.linspace(0.2, 1.5, len(NAMES))
TAKES = np.roll(np.linspace(0.2, 1.4, len(NAMES)), 5)


def device(name: str, factor: float, bend: float = 0.0) -> Table:
    """Every ordered pair: the time that a neighbour adds is what the victim suffers times what it takes."""
    pairs = tuple(
        PairMeasurement(
            victim=victim,
            neighbour=neighbour,
            device_type=name,
            mode="mps",
            slowdown=1.0 + factor * SUFFERS[i] ** (1.0 + bend) * TAKES[j],
        )
        for i, victim in enumerate(NAMES)
        for j, neighbour in enumerate(NAMES)
    )
    jobs = tuple(JobProfile(workload=job, device_type=name, step_time_s=0.01 * (k + 1)) for k, job in enumerate(NAMES))
    return Table(name=name, jobs=jobs, pairs=pairs)


OLD, SLOW, NEW = device("old", 1.0), device("slow", 1.6, 0.2), device("new", 0.5, -0.2)
ORDERED = [(pair.victim, pair.neighbour) for pair in NEW.pairs]
TRUTH = {(pair.victim, pair.neighbour): pair.slowdown for pair in NEW.pairs}


def fitted(count: int, seed: int = 0, measured: Table = NEW) -> PairBelief:
    """The transfer after so many random unordered pairs."""
    unordered = sorted({tuple(sorted(pair)) for pair in ORDERED})
    chosen = {unordered[k] for k in np.random.default_rng(seed).permutation(len(unordered))[:count]}
    pairs = [pair for pair in measured.pairs if tuple(sorted((pair.victim, pair.neighbour))) in chosen]
    return fit_transfer([OLD, SLOW], NEW.jobs, pairs)


def error(transfer: PairBelief) -> float:
    answers = transfer.predict(ORDERED)
    return float(np.mean([abs(1 / each.slowdown - 1 / TRUTH[each.victim, each.neighbour]) for each in answers]))


def test_few_pairs_give_the_level_of_a_device_type() -> None:
    before, after = error(fitted(0)), [error(fitted(6, seed)) for seed in range(4)]
    assert before > 0.15, "the level of a device type is not known without a pair of its own"
    assert np.mean(after) < 0.2 * before
    assert error(fitted(30)) < np.mean(after)


def test_without_pairs_the_intervals_hold_the_truth_and_narrow_with_them() -> None:
    answers = fitted(0).predict(ORDERED)
    assert np.mean([each.lower <= TRUTH[each.victim, each.neighbour] <= each.upper for each in answers]) > 0.9
    widths = [np.mean([each.upper - each.lower for each in fitted(count).predict(ORDERED)]) for count in (0, 5, 20)]
    assert widths[0] > 2 * widths[1] > 2 * widths[2]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 12), st.randoms(use_true_random=False))
def test_the_order_of_pairs_profiles_and_tables_changes_nothing(count: int, random: object) -> None:
    pairs = [NEW.pairs[k] for k in np.random.default_rng(count).permutation(len(NEW.pairs))[:count]]
    one = fit_transfer([OLD, SLOW], NEW.jobs, pairs).predict(ORDERED[:20])
    shuffled, jobs = list(pairs), list(NEW.jobs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    random.shuffle(jobs)  # type: ignore[attr-defined]
    other = fit_transfer([SLOW, OLD], jobs, shuffled).predict(ORDERED[:20])
    assert [each.slowdown for each in other] == pytest.approx([each.slowdown for each in one], rel=1e-9)


def test_intervals_widen_where_the_sources_are_wrong() -> None:
    """The measured pairs of this device type follow no rule of the sources: the error is learned from them."""
    noise = np.random.default_rng(3).lognormal(0.0, 0.6, len(NEW.pairs))
    noisy = zip(NEW.pairs, noise, strict=True)
    wild = replace(NEW, pairs=tuple(replace(pair, slowdown=1 + (pair.slowdown - 1) * f) for pair, f in noisy))
    calm, unruly = fitted(20), fitted(20, measured=wild)
    assert unruly.posterior.scale > 1.5 * calm.posterior.scale == 1.5


def test_jobs_that_no_source_measured_are_suggested_before_any_job_twice() -> None:
    """Others may recur: what the sources measured of them is known."""
    new = ("job3", "job7", "job8", "job9")
    known_pairs = tuple(pair for pair in OLD.pairs if not {pair.victim, pair.neighbour} & set(new))
    start = fit_transfer([replace(OLD, pairs=known_pairs)], NEW.jobs, [])
    taken: list[str] = []
    for suggestion in start.suggest(20):
        again = set(suggestion.pair) & set(new) & set(taken)
        assert not again or set(new) <= set(taken), "a job of which nothing is known is taken twice before the others"
        taken += suggestion.pair
    assert set(new) <= set(taken)
    assert len({name for each in fitted(0).suggest(6) for name in each.pair}) < len(NAMES)


def test_suggestions_are_new_and_teach_more_than_chance() -> None:
    start = fitted(0)
    suggested = [each.pair for each in start.suggest(6)]
    pairs = [p for p in NEW.pairs if {(p.victim, p.neighbour), (p.neighbour, p.victim)} & set(suggested)]
    chosen = error(fit_transfer([OLD, SLOW], NEW.jobs, pairs))
    assert chosen < np.mean([error(fitted(6, seed)) for seed in range(8)])
    measured = fitted(10)
    assert not {frozenset(each.pair) for each in measured.suggest(8)} & {frozenset(pair) for pair in measured.measured}
    only = [("job0", "job1"), ("job3", "job2")]
    assert {tuple(sorted(each.pair)) for each in start.suggest(5, among=only)} == {("job0", "job1"), ("job2", "job3")}


def test_a_self_pair_is_one_measurement() -> None:
    """It gives one row where other pairs give two: alone among them, it is never the first choice."""
    assert all(len(set(each.pair)) == 2 for each in fitted(0).suggest(5))


def test_hidden_pairs_tell_the_error() -> None:
    pairs = [pair for pair in NEW.pairs if pair.victim in NAMES[:4] and pair.neighbour in NAMES[:4]]
    score = fit_transfer([OLD, SLOW], NEW.jobs, pairs).hidden_pair_score()
    assert (score.pairs, score.coverage > 0.8) == (10, True)
    assert score.speed_error < 0.05
    assert np.isnan(fit_transfer([OLD], NEW.jobs, NEW.pairs[:1]).hidden_pair_score().speed_error)


def test_what_cannot_be_transferred_is_refused() -> None:
    strangers = [replace(job, workload=f"other-{job.workload}") for job in NEW.jobs]
    with pytest.raises(UnfitError, match="no table of another device type"):
        fit_transfer([OLD, SLOW], strangers, [])
    with pytest.raises(UnfitError, match="no table of another device type"):
        fit_transfer([NEW], NEW.jobs, [])  # its own table is none of another device type
    unstable = [replace(NEW.pairs[1], status=PairStatus.UNSTABLE, reason="noisy", slowdown=float("nan"))]
    assert fit_transfer([OLD], NEW.jobs, unstable).measured == {}


@given(st.floats(1.0, 100.0))
def test_the_excess_scale_gives_a_slowdown_back(slowdown: float) -> None:
    assert to_slowdown(to_excess_scale(np.array([slowdown])))[0] == pytest.approx(slowdown)
