"""How good and how fast whole decisions are where several things meet: types, gangs, priorities, windows, objectives.

Thirty workloads at three weights, slowdowns of low rank (`tests.policy.solve.test_search.crowd`); CPU seconds of one
core with the server's budget of two, and the gap that is left.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from interfere.config import SHIPPED_MODEL
from interfere.features.pair import FeatureEncoder
from interfere.predict.onnx import load_model
from interfere.predict.residual import OnlineModel
from interfere.records import Job, ObjectiveKind, Plan, Snapshot, Window
from tests.bench.different_jobs import all_different
from tests.bench.history import record, reference_s
from tests.policy.solve.test_search import TYPES, crowd
from tests.tables import TablePredictor, context, plan, resolver

pytestmark = pytest.mark.bench
BUDGET_S = 2.0
DIFFERENT_JOBS = (250, 500, 1000)
Change = Callable[[Snapshot], Snapshot]


def with_sizes(snapshot: Snapshot) -> Snapshot:
    """Half of the jobs on two to eight devices, eight to a node."""
    rng = np.random.default_rng(1)
    pending = tuple(replace(job, gpus=int(rng.choice([1, 1, 2, 4, 8]))) for job in snapshot.pending)
    devices = tuple(replace(device, node=f"n{k // 8}") for k, device in enumerate(snapshot.devices))
    return replace(snapshot, pending=pending, devices=devices)


def with_priorities(snapshot: Snapshot) -> Snapshot:
    """Five priorities."""
    rng = np.random.default_rng(3)
    pending = tuple(replace(job, priority=int(rng.integers(0, 5))) for job in snapshot.pending)
    return replace(snapshot, pending=pending)


def with_distinct_weights(snapshot: Snapshot) -> Snapshot:
    """No two jobs of one weight."""
    rng = np.random.default_rng(4)

    def weighed(job: Job) -> Job:
        return replace(job, weight=float(rng.uniform(0.5, 4.0)))

    devices = tuple(replace(d, residents=tuple(weighed(r) for r in d.residents)) for d in snapshot.devices)
    return replace(snapshot, pending=tuple(weighed(job) for job in snapshot.pending), devices=devices)


def with_windows(kinds: int) -> Change:
    """Every second device closes, at one of so many times."""

    def change(snapshot: Snapshot) -> Snapshot:
        ends = np.random.default_rng(2).uniform(100.0, 20_000.0, kinds).tolist()
        devices = tuple(
            replace(d, windows=(Window(from_s=0.0, until_s=ends[k % kinds]),) if k % 2 else ())
            for k, d in enumerate(snapshot.devices)
        )
        return replace(snapshot, devices=devices, now_s=0.0)

    return change


def with_objective(objective: ObjectiveKind) -> Change:
    """Another objective."""
    return lambda snapshot: replace(snapshot, objective=objective)


CASES: dict[str, tuple[int, int, int, int, Change | None]] = {  # pending, empty devices, residents, types
    "300 x 1000 / 700, one type": (300, 300, 700, 1, None),
    "300 x 1000 / 700, two types": (300, 300, 700, 2, None),
    "300 x 1000 / 700, three types": (300, 300, 700, 3, None),
    "1000 x 2000 / 1400, two types": (1000, 600, 1400, 2, None),
    "1000 x 2000 / 1400, three types": (1000, 600, 1400, 3, None),
    "500 x 10000 / 9500, three types": (500, 500, 9500, 3, None),
    "3000 x 3000 / 2100, one type": (3000, 900, 2100, 1, None),
    "600 x 250 / 120, three types, distinct weights": (600, 130, 120, 3, with_distinct_weights),
    "300 x 120 / 60, five priorities, two types": (300, 60, 60, 2, with_priorities),
    "gangs of 1 to 8, 300 x 1000 / 400": (300, 600, 400, 2, with_sizes),
    "gangs of 1 to 8, 300 x 600 / 200": (300, 400, 200, 2, with_sizes),
    "windows of 20 ends, 300 x 1000 / 700": (300, 300, 700, 1, with_windows(20)),
    "windows of 1000 ends, 300 x 1000 / 700": (300, 300, 700, 1, with_windows(1000)),
    "makespan, 300 x 1000 / 700, three types": (300, 300, 700, 3, with_objective(ObjectiveKind.MAKESPAN)),
    "fairness, 300 x 1000 / 700, three types": (300, 300, 700, 3, with_objective(ObjectiveKind.FINISH_TIME_FAIRNESS)),
}


def decided(case: str, budget_s: float = BUDGET_S) -> tuple[float, float, Plan]:
    """CPU seconds, seconds on the wall, and the plan."""
    pending, empty, residents, types, change = CASES[case]
    snapshot, table, profiles = crowd(pending, empty, residents, types)
    snapshot = change(snapshot) if change else snapshot
    snapshot = replace(snapshot, limits=snapshot.limits.within(time_budget_s=budget_s))
    asked = context(snapshot, TablePredictor(table, devices=TYPES), resolver(*profiles), "bench")
    start_s, start_cpu_s = time.perf_counter(), time.thread_time()
    found = plan(asked)
    return time.thread_time() - start_cpu_s, time.perf_counter() - start_s, found


@pytest.mark.parametrize("case", CASES)
def test_gaps_and_times_of_decisions(case: str) -> None:
    decided("300 x 1000 / 700, one type")  # loads libraries
    cpu_s, wall_s, found = decided(case)
    print(f"\n{case}: CPU {cpu_s:.2f} s, wall {wall_s:.2f} s, gap {found.gap:.2e}, {found.status.value}")
    record(f"decision {case}", {"cpu_s": cpu_s, "wall_s": wall_s, "gap": found.gap, "reference_s": reference_s()})
    assert found.gap >= 0


def test_the_hard_case_with_ten_seconds() -> None:
    cpu_s, wall_s, found = decided("600 x 250 / 120, three types, distinct weights", 10.0)
    print(f"\nten seconds: CPU {cpu_s:.2f} s, wall {wall_s:.2f} s, gap {found.gap:.2e}, {found.status.value}")
    record("decision distinct weights, ten seconds", {"cpu_s": cpu_s, "wall_s": wall_s, "gap": found.gap})
    assert found.gap >= 0


def test_growth_where_all_jobs_differ() -> None:
    """Prediction included: every workload, weight and device of its own, seven residents to ten devices."""
    model = load_model(SHIPPED_MODEL, FeatureEncoder())
    predictor = OnlineModel(model, None)
    figures: dict[str, float] = {}
    for jobs in (100, *DIFFERENT_JOBS):  # the first loads libraries
        snapshot, profiles = all_different(model, jobs, jobs, jobs * 7 // 10)
        asked = context(snapshot, predictor, lambda job, _, known=profiles: known[job.workload], "bench")
        start_s = time.thread_time()
        found = plan(asked)
        figures[f"{jobs}_cpu_s"] = time.thread_time() - start_s
        print(f"\n{jobs} x {jobs}, all different: CPU {figures[f'{jobs}_cpu_s']:.2f} s, gap {found.gap:.2e}")
    times_s = [figures[f"{jobs}_cpu_s"] for jobs in DIFFERENT_JOBS]
    figures["growth_exponent"] = float(np.polyfit(np.log(DIFFERENT_JOBS), np.log(times_s), 1)[0])
    print(f"time grows as n^{figures['growth_exponent']:.2f}")
    record("decision all different", {**figures, "reference_s": reference_s()})
    assert figures["growth_exponent"] <= 2.1
