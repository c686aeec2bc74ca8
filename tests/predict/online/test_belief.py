"""The belief learns whatever noise, liars, changed jobs and upgraded stacks do; few seeds here, all in `tests/soak`."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from interfere.predict.field import gaussian
from interfere.predict.field.smoothing import MAX_INTERVAL, MAX_RECENT
from interfere.predict.field.spaces import space_of
from interfere.predict.online.belief import Belief
from interfere.predict.online.belief_state import BeliefState
from interfere.predict.online.change_points import JobHistory
from interfere.predict.online.prior import default_prior
from tests.predict.online.belief_streams import (
    COPIES,
    DOMAIN,
    LIES,
    ODD_JOBS,
    SUBTLE_LIES,
    Stream,
    StreamResult,
    observation,
    run_stream,
    run_upgrade,
)

NOISES = (0.02, 0.2)


@cache
def learned_stream(stream: Stream) -> StreamResult:
    """Return what a stream taught, computed once however many tests compare with it; nobody changes it."""
    return run_stream(stream)


@pytest.mark.parametrize("noise", NOISES)
def test_honest_windows_keep_their_weight_and_the_noise_is_learned(noise: float) -> None:
    result = learned_stream(Stream(noise=noise, windows=600))
    assert result.honest_outliers <= 0.02
    assert result.belief.domain(DOMAIN).noise_var ** 0.5 == pytest.approx(noise, rel=0.35)
    assert result.error(result.honest_jobs) <= 0.05


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("named", [True, False])
def test_one_lying_reporter_of_four_harms_nobody_else(lie: str, named: bool) -> None:
    honest = learned_stream(Stream(noise=0.05, named=named, windows=1000))
    lied = learned_stream(Stream(noise=0.05, named=named, windows=1000, lie=lie, liars=(0,)))
    assert lied.error(lied.honest_jobs) <= 1.2 * honest.error(lied.honest_jobs)
    assert lied.honest_outliers <= 0.02


def test_two_colluding_reporters_of_eight_harm_nobody_else() -> None:
    honest = learned_stream(Stream(noise=0.05, reporters=8, windows=1000))
    lied = learned_stream(Stream(noise=0.05, reporters=8, windows=1000, lie="times 5", liars=(0, 1)))
    assert lied.error(lied.honest_jobs) <= 1.2 * honest.error(lied.honest_jobs)


@pytest.mark.parametrize("drifted", [False, True])
@pytest.mark.parametrize("lie", ["times 2", "alternating 2", "growing 2"])
def test_one_liar_among_four_reporters_who_see_every_job_is_found_out(lie: str, drifted: bool) -> None:
    """Nobody but the other reporters of its jobs contradicts it: the site may have drifted from the table meanwhile."""
    jobs = list(range(24))
    sites = [Stream(noise=0.05, windows=1000, seed=seed, shared=True, drifted=drifted) for seed in range(2)]
    honest = [learned_stream(site) for site in sites]
    lied = [learned_stream(replace(site, lie=lie, liars=(0,))) for site in sites]
    error, error_with_liar = (np.mean([result.error(jobs) for result in results]) for results in (honest, lied))
    assert error_with_liar <= 1.25 * error
    assert max(result.honest_outliers for result in lied) <= 0.02


def test_odd_jobs_told_falsely_and_a_liar_who_reports_first_harm_nobody() -> None:
    """Of jobs that only the liar has reported on, nobody knows better; once others come, what it said is corrected."""
    jobs = list(range(24))
    honest = learned_stream(Stream(noise=0.05, windows=1000, shared=True)).error(jobs)
    odd = learned_stream(Stream(noise=0.05, windows=1000, shared=True, lie="odd jobs 2", liars=(0,)))
    assert odd.error(jobs) <= 1.2 * honest
    first = learned_stream(Stream(noise=0.05, windows=1000, shared=True, lie="times 2", liars=(0,), liar_first=100))
    assert first.error(jobs) <= 1.2 * honest
    assert first.honest_outliers <= 0.01


@pytest.mark.parametrize("lie", ["times 2", "alternating 2", "growing 2", ODD_JOBS])
def test_a_liar_on_a_drifted_site_and_two_who_collude_harm_nobody(lie: str) -> None:
    jobs = list(range(24))
    site = Stream(noise=0.05, windows=1000, shared=True, drifted=True)
    honest = learned_stream(site).error(jobs)
    assert honest <= 0.0135
    lied = learned_stream(replace(site, lie=lie, liars=(0,)))
    assert lied.error(jobs) <= 1.25 * honest
    assert lied.honest_outliers <= 0.02
    of_eight = replace(site, reporters=8)
    colluding = learned_stream(replace(of_eight, lie=lie, liars=(0, 1)))
    assert colluding.error(jobs) <= 1.3 * learned_stream(of_eight).error(jobs)


def test_lies_that_no_single_window_shows_harm_nobody_on_a_drifted_site() -> None:
    """A clock that runs a tenth too fast, a lie that begins late and grows, and answers copied before the lie."""
    jobs = list(range(24))
    site = Stream(noise=0.05, windows=1000, shared=True, drifted=True)
    honest = learned_stream(site).error(jobs)
    for lie in (*SUBTLE_LIES, COPIES):
        lied = learned_stream(replace(site, lie=lie, liars=(0,)))
        assert lied.error(jobs) <= 1.2 * honest, lie
        assert lied.honest_outliers <= 0.02, lie


def test_jobs_of_one_reporter_each_are_learned_on_a_drifted_site() -> None:
    """Least squares with the true effects and all windows errs by .010 (tests/bench/lying_reporters.py)."""
    sites = [learned_stream(Stream(noise=0.05, windows=1000, seed=seed, drifted=True)) for seed in range(2)]
    assert np.mean([site.error(list(range(24))) for site in sites]) <= 0.0145
    assert all(site.belief.domain(DOMAIN).pair_scale <= 0.4 for site in sites), "no pair drifted by itself"


def test_what_a_reporter_is_off_by_is_found_and_honest_ones_are_not_corrected() -> None:
    lied = learned_stream(Stream(noise=0.05, windows=600, shared=True, lie="times 2", liars=(2,)))
    reporters = lied.belief.state.nuisances[DOMAIN].reporters
    assert reporters["r2"].mean == pytest.approx(math.log(2.0), abs=0.05)
    assert all(abs(reporters[name].mean) <= 0.03 for name in ("r0", "r1", "r3"))


@pytest.mark.parametrize("shared", [6, 2])
def test_a_reporter_compared_on_most_of_its_jobs_is_corrected_on_the_others_too(shared: int) -> None:
    """Reporter "x" doubles what it tells of eight jobs, of which honest "y" and "z" see the first six, or two."""
    rng, belief = np.random.default_rng(0), Belief(replace(default_prior(), noise_var=0.024**2), BeliefState())
    for k in range(480):
        reporter = "xyz"[k % 3]
        victim = int(rng.integers(8 if reporter == "x" else shared))
        observed = 0.4 + float(rng.normal(0, 0.03)) + (math.log(2.0) if reporter == "x" else 0.0)
        belief.learn(observation(victim, int(rng.integers(8)), 0.4, observed, reporter))
    seen_by_liar_alone = [observation(7, k, 0.4, 0.0, "") for k in range(8)]
    errors = [belief.effects.expected(each, belief.domain(DOMAIN)).mean for each in seen_by_liar_alone]
    if shared == 6:
        assert max(map(abs, errors)) <= 0.1
    else:  # most of its jobs were compared with nobody: they may have changed
        assert min(errors) >= 0.3


@pytest.mark.parametrize("slow", [1.0, 1.5])
def test_a_throttled_device_is_no_property_of_its_jobs(slow: float) -> None:
    rng, n = np.random.default_rng(0), 24
    table = np.maximum(
        0.3 + rng.normal(0, 0.2, (n, 1)) + rng.normal(0, 0.15, (1, n)) + rng.normal(0, 0.1, (n, n)), 0.02
    )
    belief = Belief(replace(default_prior(), noise_var=0.024**2), BeliefState())
    for _ in range(1000):
        victim, neighbour, device = (int(rng.integers(high)) for high in (n, n, 8))
        observed = table[victim, neighbour] + rng.normal(0, 0.05) + (math.log(slow) if device == 7 else 0.0)
        window = observation(victim, neighbour, table[victim, neighbour], observed, "agent")
        belief.learn(replace(window, device=f"gpu {device}"))
    asked = [observation(v, k, table[v, k], 0.0, "") for v in range(n) for k in range(n)]
    errors = [abs(math.expm1(belief.effects.expected(each, belief.domain(DOMAIN)).mean)) for each in asked]
    assert float(np.mean(errors)) <= 0.010
    devices = belief.state.nuisances[DOMAIN].devices
    assert devices["gpu 7"].mean == pytest.approx(math.log(slow), abs=0.05)
    assert all(abs(devices[f"gpu {k}"].mean) <= 0.04 for k in range(7))


def test_reporters_that_see_jobs_of_their_own_are_not_compared() -> None:
    """Naming who reports changes nothing where nobody else saw the job: level and reporter cannot be told apart."""
    jobs = list(range(24))
    site = Stream(noise=0.05, windows=600, drifted=True)
    named, unnamed = (learned_stream(replace(site, named=named)) for named in (True, False))
    assert not named.belief.state.nuisances[DOMAIN].reporters
    assert named.error(jobs) <= 1.1 * unnamed.error(jobs)


@pytest.mark.parametrize("seed", [11, 1027, 1045])
def test_noise_of_a_new_site_is_no_change_of_its_software(seed: int) -> None:
    """Eight times the noise of training; the errors of its first windows happen to look like shifts of jobs."""
    for reporters in (4, 8):
        honest = learned_stream(Stream(noise=0.2, seed=seed, reporters=reporters, windows=200))
        lied = learned_stream(
            Stream(
                noise=0.2, seed=seed, reporters=reporters, windows=200, lie="growing", liars=(0, 1)[: reporters // 4]
            )
        )
        assert honest.belief.domain(DOMAIN).epoch == lied.belief.domain(DOMAIN).epoch == 0


@pytest.mark.parametrize("change", [0.6, 1.5, 3.0])
@pytest.mark.parametrize(("noise", "most"), [(0.02, 3), (0.2, 40)])
def test_a_changed_job_is_learned_within_few_of_its_windows(change: float, noise: float, most: int) -> None:
    result = learned_stream(Stream(noise=noise, change=change, windows=1000 if most == 3 else 1800, seed=1))
    assert 0 < result.windows_to_learn_change <= most


def table_of_two_devices() -> tuple[list[tuple[str, str, str, float]], dict[str, str]]:
    """Return rows (device, victim, neighbour, log slowdown) of 26 jobs, and the family of each job, one of seven."""
    rng = np.random.default_rng(0)
    names = [f"w{k}" for k in range(26)]
    own, harm = rng.normal(0.25, 0.15, 26), rng.normal(0.2, 0.15, 26)
    rows = [
        (device, names[v], names[n], max(0.02, own[v] + harm[n] + rng.normal(0, 0.1)))
        for device in ("p100", "v100")
        for v in range(26)
        for n in range(26)
    ]
    return rows, {name: f"family {int(name[1:]) % 7}" for name in names}


def test_an_upgrade_that_a_tenth_of_the_pairs_shows_is_believed_for_the_others() -> None:
    result = run_upgrade(*table_of_two_devices(), 0.1, seed=0)
    assert result.error <= 0.7 * result.error_of_table
    assert result.coverage >= 0.85


def test_an_upgrade_that_families_feel_is_found_in_less_than_seventy_windows() -> None:
    """No job has a level of its own here: what is learned of two families holds for their other jobs."""
    results = [run_upgrade(*table_of_two_devices(), 0.1, seed=seed, upgrade="families") for seed in (0, 2, 3)]
    assert np.mean([result.error / result.error_of_table for result in results]) <= 0.9
    assert np.mean([result.coverage for result in results]) >= 0.85


def test_no_effect_of_jobs_makes_a_neighbour_speed_a_job_up() -> None:
    """After an upgrade that a third of the pairs feel as no slowdown at all."""
    rng, n = np.random.default_rng(0), 16
    table = np.maximum(rng.normal(0.35, 0.15, (n, n)), 0.05)
    sums = table - 0.3 + rng.normal(0, 0.1, (n, 1)) + rng.normal(0, 0.1, (1, n))
    truth = np.maximum(sums, 0.0)
    belief = Belief(replace(default_prior(), noise_var=0.024**2), BeliefState())
    for _ in range(400):
        v, k = (int(rng.integers(n)) for _ in range(2))
        belief.learn(observation(v, k, table[v, k], truth[v, k] + float(rng.normal(0, 0.02)), "r"))
    domain = belief.domain(DOMAIN)
    assert domain.epoch == 1
    asked = [observation(v, k, table[v, k], 0.0, "") for v in range(n) for k in range(n)]
    found = np.array([each.log_predicted + belief.effects.expected(each, domain).mean for each in asked])
    assert found.min() >= -0.05, "own windows may lie below"
    assert np.abs(found - truth.ravel()).mean() <= 0.02
    # A pair that nobody reported, of two jobs of which little is left.
    new = observation(int(sums.sum(axis=1).argmin()), int(sums.sum(axis=0).argmin()), 0.05, 0.0, "")
    without_windows = replace(new, neighbour=("unknown", *DOMAIN))
    assert new.log_predicted + belief.effects.expected(without_windows, domain).mean >= 0.0


def test_a_job_that_has_changed_by_itself_has_no_bound() -> None:
    """A job that became faster: its slowdowns, told against its old rate alone, fall below 1 beside new neighbours."""
    belief, rng = Belief(default_prior(), BeliefState()), np.random.default_rng(0)
    for k in range(40):
        level = 0.1 if k < 10 else -0.4
        belief.learn(observation(0, k % 6, 0.1, level + float(rng.normal(0, 0.02)), "r"))
    expected = belief.effects.expected(observation(0, 9, 0.1, 0.0, ""), belief.domain(DOMAIN))
    assert 0.1 + expected.mean <= -0.2


def test_equal_windows_give_equal_states_and_a_copy_is_not_reached_by_later_windows() -> None:
    first, second = run_stream(Stream(noise=0.1, windows=200)), run_stream(Stream(noise=0.1, windows=200))
    assert first.belief.state.own_shift == second.belief.state.own_shift
    copied = first.belief.state.copy()
    before = {name: getattr(copied, name) for name in ("pairs", "streams", "domains", "histories", "own_shift")}
    before = {name: dict(value) for name, value in before.items()}
    for _ in range(50):
        first.belief.learn(observation(0, 1, 0.3, 1.2, "r0"))
    assert {name: getattr(copied, name) for name in before} == before
    assert first.belief.state.own_shift != copied.own_shift


def test_one_window_never_decides_a_change_and_others_contradict_a_single_reporter() -> None:
    history = JobHistory()
    for _ in range(20):
        history = history.with_window("honest", 0.0, 1e-4, 1e-3, "n")
    once = history.with_window("liar", 1.5, 1e-4, 1e-3, "n")
    assert once.agreed_change("liar") is None
    often = history
    for _ in range(40):
        often = often.with_window("liar", 1.5, 1e-4, 1e-3, "n")
        assert often.agreed_change("liar") is None
    alone = JobHistory()
    for _ in range(4):
        alone = alone.with_window("liar", 1.5, 1e-4, 1e-3, "n")
    assert alone.agreed_change("liar") is not None
    outdated = history
    for _ in range(120):  # the honest reporter has not been heard of for long
        outdated = outdated.with_window("liar", 1.5, 1e-4, 1e-3, "n")
    assert outdated.agreed_change("liar") is not None


def test_the_cost_of_a_window_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in rows: nothing but smoothing factorises a matrix, seldom, and never of more than the recent windows."""
    factorised: list[int] = []
    monkeypatch.setattr(gaussian, "space_of", lambda *given: factorised.append(len(given[2])) or space_of(*given))
    belief, rng, counts = Belief(default_prior(), BeliefState()), np.random.default_rng(0), []
    for k in range(1500):
        victim, neighbour, reporter = (int(rng.integers(high)) for high in (500, 500, 8))
        belief.learn(observation(victim, neighbour, 0.3, 0.3 + float(rng.normal(0, 0.2)), f"r{reporter}"))
        if k % 500 == 499:
            counts.append(len(factorised))
    most_rows = MAX_RECENT + MAX_INTERVAL
    assert max(factorised) <= most_rows
    assert len(belief.domain(DOMAIN).recent) <= most_rows
    assert counts[2] - counts[1] <= counts[1] - counts[0], "later windows cause no more smoothing than earlier ones"
    assert counts[2] - counts[1] <= 500 / 4, "factorisations of 500 windows"
    assert all(math.isfinite(shift.mean) for shift in belief.state.own_shift.values())


@pytest.mark.parametrize("pair_scale", [0.01, 0.24, 1.0, 4.0])
def test_a_pair_known_before_its_domain_changed_is_believed_less_but_more_than_an_unknown_one(
    pair_scale: float,
) -> None:
    """A pair with a hundred windows, then two changes of the domain, whose single pairs vary by their own scale."""
    belief = Belief(default_prior(), BeliefState())
    seen = observation(0, 1, 0.3, 0.35, "r0")
    for _ in range(100):
        belief.learn(seen)
    before = belief.effects.of_pair(seen, belief.domain(DOMAIN))
    later = replace(belief.domain(DOMAIN), epoch=2, scales={"pair": pair_scale}, covariance=(0.01, 0.0, 0.01))
    after = belief.effects.of_pair(seen, later)
    assert before.variance < after.variance <= after.effects_var
