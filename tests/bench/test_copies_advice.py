"""Advice on MIG slice and copies: ParvaGPU's A100, whole models held out, one latency target for each model and batch.

A case is a model and a batch; its latency target is 1.2 times the fastest measured latency of that batch (batch ÷
throughput: the table's own latency is rounded to ms). Known of the held-out model are its rows of one copy, on every
slice; all that several copies do comes from the ten other models. The advice is good where the advised configuration
keeps the target and has at least 95 % of the highest throughput of all that keep it. Then the configuration that the
advice names is measured, and advice is taken again.
"""

import numpy as np
import pytest

from interfere.predict.copies.advice import TOLERANCE, ThroughputOf, advise_copies
from interfere.predict.copies.belief import CopiesBelief, CopiesModel
from interfere.predict.copies.measurements import Configuration, instances, read_measurements
from tests.data.importers.public_files import public

pytestmark = pytest.mark.bench
TARGET = 1.2  # times the fastest measured latency of the batch
MEASURED = 4  # none, one, two, three configurations
LEAST_GOOD, COVERAGE = 0.90, (0.85, 0.95)
Latencies = dict[Configuration, float]


def test_advised_slice_and_copies_of_models_that_were_held_out() -> None:
    models = read_measurements(public("parvagpu"))
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
            for of in ThroughputOf:
                good[of].append(_good_after_measuring(belief, latency_s, target_s, of))
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
    assert np.mean(good[ThroughputOf.SLICE], axis=0)[0] >= LEAST_GOOD
    assert np.mean(good[ThroughputOf.GPU], axis=0)[1] >= LEAST_GOOD  # once the advised configuration was measured
    assert COVERAGE[0] <= np.mean(covered) <= COVERAGE[1]


def _good_after_measuring(belief: CopiesBelief, latency_s: Latencies, target_s: float, of: ThroughputOf) -> list[bool]:
    """Is the advice good after none, one, two and three configurations were measured?"""
    good = []
    for _ in range(MEASURED):
        advice = advise_copies(belief, target_s, of)
        good.append(_is_good(advice.configuration, latency_s, target_s, of))
        if advice.measure is not None:
            belief = belief.given(advice.measure, latency_s[advice.measure])
    return good


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
