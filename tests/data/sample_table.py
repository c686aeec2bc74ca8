"""A small valid table, made by hand."""

from dataclasses import replace

from interfere.data.tables import Table
from interfere.records import GroupMeasurement, JobProfile, KernelStat, PairMeasurement, PairStatus

JOBS = tuple(
    JobProfile(
        workload=name,
        device_type="cpu-core",
        step_time_s=step_s,
        source="cpu",
        step_time_sd_s=0.001,
        busy_frac=0.5,
        busy_s=(0.004, 0.005),
        idle_s=(0.004, 0.0),
        kernels=(KernelStat(name="aten::mm", mean_s=1e-4, count=3.0, grid=(8, 1, 1)),),
    )
    for name, step_s in (("a", 0.01), ("b", 0.02))
)
PAIR = PairMeasurement(
    victim="a",
    neighbour="b",
    device_type="cpu-core",
    mode="timeslice",
    slowdown=1.5,
    lower=1.4,
    upper=1.6,
    passes=(1.45, 1.55),
    overlap_frac=1.0,
    steal_frac=0.01,
    source="cpu",
    campaign="test",
    device_name="a processor",
    measured_at_s=1.7e9,
)
PAIRS = (
    PAIR,
    replace(PAIR, victim="b", neighbour="a", slowdown=1.2, lower=1.1, upper=1.3, passes=(1.1, 1.3)),
    replace(PAIR, victim="a", neighbour="a", slowdown=2.0, lower=1.9, upper=2.1, passes=(2.0, 2.0, 1.9, 2.1)),
    replace(
        PAIR,
        victim="b",
        neighbour="b",
        status=PairStatus.UNSTABLE,
        reason="the clock drifted",
        slowdown=float("nan"),
        lower=float("nan"),
        upper=float("nan"),
        passes=(),
    ),
)
TABLE = Table(name="sample", jobs=JOBS, pairs=PAIRS)

GROUP = GroupMeasurement(
    victim="a",
    company=("a", "b"),
    device_type="cpu-core",
    mode="timeslice",
    slowdown=2.5,
    lower=2.4,
    upper=2.6,
    passes=(2.4, 2.5, 2.5, 2.6),  # both copies of a in each of two blocks
    overlap_frac=1.0,
    steal_frac=0.02,
    source="cpu",
    campaign="test",
    device_name="a processor",
    measured_at_s=1.7e9,
)
GROUPS = (
    GROUP,
    replace(GROUP, victim="b", company=("a", "a"), slowdown=1.8, lower=1.7, upper=1.9, passes=(1.75, 1.85)),
    replace(
        GROUP,
        victim="b",
        company=("b", "b", "b"),
        status=PairStatus.UNSTABLE,
        reason="the clock drifted",
        slowdown=float("nan"),
        lower=float("nan"),
        upper=float("nan"),
        passes=(),
    ),
)
WITH_GROUPS = replace(TABLE, groups=GROUPS)
