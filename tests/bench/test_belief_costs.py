"""What the belief costs: processor time of a window, and the size of the state of 1,000 workloads.

Both are with the prior of the shipped GPU model, whose errors have as many effects as a published model's have, and
after a change of the software stack, which adds the terms of the stack.
"""

import gc
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from interfere.config import SHIPPED_GPU_MODEL
from interfere.predict.online.belief import Belief
from interfere.predict.online.belief_state import BeliefState, PairObservation
from interfere.predict.online.prior import read_prior
from tests.bench.history import record
from tests.cpu_time import cpu_s
from tests.predict.online.belief_streams import DOMAIN, observation

pytestmark = pytest.mark.bench
WORKLOADS, WINDOWS, REPORTERS = 1_000, 2_000, 8
MAX_STATE_MIB = 64.0


def windows(count: int, workloads: int, seed: int = 0) -> Sequence[PairObservation]:
    """Windows of random pairs at a site whose software stack makes all slowdowns 1.4 times the predicted ones."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        victim, neighbour, reporter = (int(rng.integers(high)) for high in (workloads, workloads, REPORTERS))
        observed = 0.3 + 0.34 + float(rng.normal(0, 0.05))
        window = observation(victim, neighbour, 0.3, observed, f"r{reporter}")
        families = f"family {victim % 20}", f"family {neighbour % 20}"
        found.append(replace(window, measured=bool(rng.random() < 0.5), families=families))
    return found


@pytest.mark.timeout(1200)
def test_a_window_and_a_thousand_workloads() -> None:
    prior, figures = read_prior(SHIPPED_GPU_MODEL), {}
    # 1. Processor time of a window, smoothing included, beside the reference operation of the same run.
    belief, sent = Belief(prior, BeliefState()), windows(WINDOWS, WORKLOADS)
    start_s = time.process_time()
    for window in sent:
        belief.learn(window)
    window_s = (time.process_time() - start_s) / WINDOWS
    assert belief.domain(DOMAIN).epoch == 1
    left = np.random.default_rng(0).random((512, 512), dtype=np.float32)
    figures |= {"window ms": window_s * 1e3, "window ÷ matrix product": window_s / cpu_s(lambda: left @ left, 20)}
    # 2. The size of the state of as many workloads.
    tracemalloc.start()
    other = Belief(prior, BeliefState())
    for window in windows(WINDOWS, WORKLOADS, seed=1):
        other.learn(window)
    gc.collect()
    figures["state MiB"] = tracemalloc.get_traced_memory()[0] / 2**20
    tracemalloc.stop()
    figures |= {
        "workloads": len(other.state.own_shift.keys() | other.state.harm_shift.keys()),
        "pairs": other.state.pair_count,
    }
    # 3. A snapshot, which every window makes.
    start_s = time.process_time()
    for _ in range(100):
        other.state.copy()
    figures["snapshot ms"] = (time.process_time() - start_s) / 100 * 1e3
    print(*(f"{name}: {value:.4g}" for name, value in figures.items()), sep="\n")
    record("belief-costs", figures)
    assert figures["state MiB"] <= MAX_STATE_MIB
