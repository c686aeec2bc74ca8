"""Small timelines: drawn ones for laws, written ones for examples."""

from hypothesis import settings
from hypothesis import strategies as st

from interfere.timeline.kernel_schedulers import (
    EevdfScheduler,
    ExclusiveScheduler,
    PriorityGapFillingScheduler,
    SingleQueueScheduler,
    SpatialScheduler,
    TimeSliceScheduler,
)
from interfere.timeline.records import KernelIdentity, Timeline, TimelineKernel
from interfere.timeline.replay_engine import KernelScheduler

US = 1e-6
LAW = settings(max_examples=20, deadline=None)  # of each mode
MODES: tuple[KernelScheduler, ...] = (
    ExclusiveScheduler(),
    TimeSliceScheduler(slice_s=50 * US),
    TimeSliceScheduler(slice_s=30 * US, switch_s=3 * US, launch_ahead=1),
    EevdfScheduler(slice_s=40 * US),
    SpatialScheduler(),
    SingleQueueScheduler(launch_ahead=4),
    PriorityGapFillingScheduler(epsilon_s=5 * US),
)
SERIAL = tuple(mode for mode in MODES if not isinstance(mode, SpatialScheduler))


def kernel(
    duration_us: float, gap_us: float = 0.0, sm: float = 1.0, bandwidth: float = 0.0, name: str = "k"
) -> TimelineKernel:
    return TimelineKernel(
        identity=KernelIdentity(name=name),
        duration_s=duration_us * US,
        gap_s=gap_us * US,
        sm_frac=sm,
        bandwidth_frac=bandwidth,
    )


def line(name: str, *kernels: tuple[float, float]) -> Timeline:
    """Durations and gaps in microseconds."""
    return Timeline(name=name, kernels=tuple(kernel(*one) for one in kernels))


# Whole tenths of microseconds: many kernels end and begin at the same instant, which is where an engine may stumble.
_DURATIONS = st.integers(1, 2_000).map(lambda n: n / 10)
_GAPS = st.one_of(st.just(0.0), st.integers(1, 3_000).map(lambda n: n / 10))
_SHARES = st.integers(0, 10).map(lambda n: n / 10)


def timelines(name: str = "job", most: int = 8) -> st.SearchStrategy[Timeline]:
    one = st.builds(kernel, _DURATIONS, _GAPS, _SHARES, _SHARES)
    return st.lists(one, min_size=1, max_size=most).map(lambda ks: Timeline(name=name, kernels=tuple(ks)))
