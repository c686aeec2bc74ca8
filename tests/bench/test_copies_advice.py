"""Advice on MIG slice and copies: ParvaGPU's A100, whole models held out, one latency target for each model and batch.

A case is a model and a batch; its latency target is 1.2 times the fastest measured latency of that batch (batch ÷
throughput: the table's own latency is rounded to ms). Known of the held-out model are its rows of one copy, on every
slice; all that several copies do comes from the ten other models. The advice is good where the advised configuration
keeps the target and has at least 95 % of the highest throughput of all that keep it. Then the configuration that the
advice names is measured, and advice is taken again. This is told without a limit on the risk; a second table tells for
four targets how often the advice misses the target and how often it is good when the risk is the default one.
"""

import numpy as np
import pytest

from interfere.predict.copies.advice import RISK, TOLERANCE, CopiesBelief, CopiesModel, ThroughputOf, advise_copies
from interfere.predict.copies.measurements import Configuration, instances, read_measurements
from tests.data.importers.public_files import public

pytestmark = pytest.mark.bench
TARGET = 1.2  # times the fastest measured latency of the batch
MEASURED = 4  # none, one, two, three configurations
TARGETS = (1.05, 1.2, 1.5, 2.0)
LEAST_GOOD, COVERAGE = 0.90, (0.85, 0.95)
Latencies = dict[Configuration, float]


def test_advised_slice_and_copies_of_models_that_were_held_out() -> None:
    models = read_measurements(public("parvagpu"))
    missed: dict[tuple[ThroughputOf, float], list[list[bool]]] = {(of, t): [] for of in ThroughputOf for t in TARGETS}
    kept_and_good: dict[tuple[ThroughputOf, float], list[list[bool]]] = {key: [] for key in missed}
    good: dict[ThroughputOf, list[list[bool]]] = {each: [] for each in ThroughputOf}
    one_copy: dict[ThroughputOf, list[bool]] = {each: [] for each in ThroughputOf}
    covered: list[bool] = []
    for model in models:
        copies = CopiesModel([other for other in models if other is not model])
        for batch in sorted({key.batch for key in model.throughput}):
            latency_s = {key: model.latency_s(key) for key in model.throughput if key.batch == batch}
            target_s = TARGET * min(latency_s.values())
            if not np.isfinite(target_s):
                continue
            belief = copies.belief(model.of_one_copy(), batch)
            covered += _covered(belief, latency_s)
            for (of, ratio), misses in missed.items():
                asked_s = ratio * min(latency_s.values())
                advised = _advised(belief, latency_s, asked_s, of, measured=2, risk=RISK)
                misses.append([latency_s[key] > asked_s for key in advised])
                kept_and_good[of, ratio].append([_is_good(key, latency_s, asked_s, of) for key in advised])
            for of in ThroughputOf:
                advised = _advised(belief, latency_s, target_s, of, measured=MEASURED, risk=1.0)
                good[of].append([_is_good(key, latency_s, target_s, of) for key in advised])
                alone = {key: time_s for key, time_s in latency_s.items() if key.copies == 1 and time_s <= target_s}
                chosen = max(alone, key=lambda key: _throughput(key, alone, of), default=None)
                one_copy[of].append(chosen is not None and _is_good(chosen, latency_s, target_s, of))
    print(f"\n{len(covered)} configurations of several copies, {100 * np.mean(covered):.1f} % within the 90 % interval")
    for of in ThroughputOf:
        rates = 100 * np.mean(good[of], axis=0)
        steps = ", ".join(f"{rate:.1f} % after {k}" for k, rate in enumerate(rates))
        baseline = 100 * np.mean(one_copy[of])
        print(
            f"throughput of a {of.value:5}: {len(good[of])} cases, good {steps}; the best of one copy {baseline:.1f} %"
        )
    for (of, ratio), cases in missed.items():
        rates = [
            f"{100 * np.mean(of_key, axis=0)[k]:.1f}" for of_key in (cases, kept_and_good[of, ratio]) for k in (0, 1)
        ]
        print(
            f"{of.value:5}, target {ratio} x, risk {RISK}: missed {rates[0]} %, good {rates[2]} %; "
            f"once one was measured {rates[1]} and {rates[3]} %"
        )
    assert all(np.mean(cases, axis=0).max() <= RISK for cases in missed.values())
    assert np.mean(good[ThroughputOf.SLICE], axis=0)[0] >= LEAST_GOOD
    assert np.mean(good[ThroughputOf.GPU], axis=0)[1] >= LEAST_GOOD  # once the advised configuration was measured
    assert COVERAGE[0] <= np.mean(covered) <= COVERAGE[1]


def _advised(
    belief: CopiesBelief, latency_s: Latencies, target_s: float, of: ThroughputOf, *, measured: int, risk: float
) -> list[Configuration]:
    """Return what is advised after none, one, two ... of the configurations that the advice names were measured."""
    advised = []
    for _ in range(measured):
        advice = advise_copies(belief, target_s, of, risk=risk)
        advised.append(advice.configuration)
        if advice.measure is not None:
            belief = belief.given(advice.measure, latency_s[advice.measure])
    return advised


def _is_good(chosen: Configuration, latency_s: Latencies, target_s: float, of: ThroughputOf) -> bool:
    best = max(_throughput(key, latency_s, of) for key, time_s in latency_s.items() if time_s <= target_s)
    return latency_s[chosen] <= target_s and _throughput(chosen, latency_s, of) >= (1 - TOLERANCE) * best


def _throughput(key: Configuration, latency_s: Latencies, of: ThroughputOf) -> float:
    slices = instances(key.slice_size) if of is ThroughputOf.GPU else 1
    return slices * key.copies * key.batch / latency_s[key]


def _covered(belief: CopiesBelief, latency_s: Latencies) -> list[bool]:
    """For each configuration of several copies that ran: does its latency lie in the 5 to 95 % interval?"""
    scores = [
        abs(np.log(latency_s[key]) - belief.mean[k]) / np.sqrt(belief.covariance[k, k])
        for k, key in enumerate(belief.configurations)
        if key.copies > 1 and np.isfinite(latency_s[key])
    ]
    return [bool(score <= 1.645) for score in scores]
