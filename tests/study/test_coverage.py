"""How much of a trace the truth covers, and how much of that rests on the assumption about gangs."""

import numpy as np
import pytest

from interfere.errors import InvalidInputError
from interfere.sim.truth import TruthTable
from interfere.study.coverage import coverage_of, require_coverage
from interfere.testing.schedulers import job
from tests.sim.small_worlds import world

NAN = np.nan
TRUTH = TruthTable(
    device_type="gpu",
    mode="timeslice",
    workloads=("a", "b", "lonely", "absent"),
    table=np.array([[1.2, 1.3, NAN, 1.1], [1.4, 1.1, NAN, 1.1], [NAN, NAN, NAN, 1.1], [1.1, 1.1, 1.1, 1.1]]),
)


def test_jobs_and_hours_of_known_workloads_count_and_gangs_are_told_apart() -> None:
    jobs = (
        job("single", 0.0, workload="a", duration_s=3600.0),
        job("gang", 0.0, workload="b", gpus=3, duration_s=3600.0),
        job("measured beside none of these", 0.0, workload="lonely", duration_s=3600.0),
        job("unknown", 0.0, workload="nobody", gpus=3, duration_s=3600.0),
    )
    coverage = coverage_of(TRUTH, [world(*jobs, count=4)])
    assert (coverage.known_jobs, coverage.known_gang_jobs, coverage.has_gangs) == (2, 1, True)
    assert coverage.note().startswith(
        "truth covers 50.0% of the trace's jobs and 50.0% of its GPU hours; 75.0% of these GPU hours are of jobs on "
        "several GPUs"
    )
    require_coverage(coverage, TRUTH, [])


def test_without_gangs_nothing_is_assumed() -> None:
    coverage = coverage_of(TRUTH, [world(job("single", 0.0, workload="a", duration_s=60.0))])
    assert coverage.note() == "truth covers 100.0% of the trace's jobs and 100.0% of its GPU hours"
    assert not coverage.has_gangs


def test_a_truth_that_knows_nothing_of_the_trace_is_refused() -> None:
    """Else it would be told that sharing changes nothing."""
    strangers = [world(*(job(f"j{k}", float(k), 60.0, workload=f"site {k}") for k in range(3)))]
    coverage = coverage_of(TRUTH, strangers)
    assert (coverage.job_share, coverage.gpu_h_share) == (0.0, 0.0)
    with pytest.raises(InvalidInputError, match=r"knows 0.0% of the trace's jobs") as raised:
        require_coverage(coverage, TRUTH, strangers)
    assert "site 0, site 1, site 2; the truth's: a, b" in str(raised.value.value)
