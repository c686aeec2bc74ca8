"""How much of a trace the truth covers, and how much of that rests on the assumption about gangs."""

import numpy as np

from interfere.sim.truth import TruthTable
from tests.sim.small_worlds import job, world
from training.replay.answer import coverage_note

NAN = np.nan
TRUTH = TruthTable(
    device_type="gpu",
    mode="timeslice",
    workloads=("a", "b", "lonely"),
    table=np.array([[1.2, 1.3, NAN], [1.4, 1.1, NAN], [NAN, NAN, NAN]]),
)


def test_hours_of_known_workloads_count_and_gangs_are_told_apart() -> None:
    jobs = (
        job("single", 0.0, workload="a", duration_s=3600.0),
        job("gang", 0.0, workload="b", gpus=3, duration_s=3600.0),
        job("unmeasured", 0.0, workload="lonely", duration_s=3600.0),
        job("unknown", 0.0, workload="nobody", gpus=3, duration_s=3600.0),
    )
    note = coverage_note(TRUTH, [world(*jobs, count=4)])
    assert note.startswith("truth covers 50.0% of the trace's GPU hours; 75.0% of these are jobs on several GPUs")


def test_without_gangs_nothing_is_assumed() -> None:
    note = coverage_note(TRUTH, [world(job("single", 0.0, workload="a", duration_s=60.0))])
    assert note == "truth covers 100.0% of the trace's GPU hours"
