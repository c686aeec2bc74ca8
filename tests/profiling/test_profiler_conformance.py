"""Every profiler keeps the laws of its protocol: resident workloads, external programs, and static traces (alone only).

Timing figures are compared with wide bounds: a machine with busy neighbours may disturb every measurement.
"""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from interfere.errors import InterfereError
from interfere.profiling import affinity
from interfere.profiling.affinity import choose_layout
from interfere.profiling.programs.profiler import CommandConfig, ProgramProfiler
from interfere.profiling.static.profiler import StaticProfiler
from interfere.profiling.workload_profiler import WorkerPool, WorkloadProfiler
from interfere.protocols import Profiler, SoloProfiler
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, BlockRequest, MeasuredBlock
from interfere.sharing_modes import DEFAULT_MODE
from tests.profiling.processes import all_gone, descendants
from tests.profiling.programs.sample_programs import BUSY, WAITING, leftovers, program

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin processes")


Profiler_co = TypeVar("Profiler_co", bound=SoloProfiler, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Harness(Generic[Profiler_co]):
    """One implementation, with the names of workloads for it."""

    device_type: str
    open: Callable[[Path, tuple[str, ...]], AbstractContextManager[Profiler_co]]  # a folder, the workloads of the test
    workloads: tuple[str, str]
    failing: str


@contextmanager
def open_workload_profiler(folder: Path, names: tuple[str, ...]) -> Iterator[WorkloadProfiler]:
    layout, self_pairs = choose_layout(DEFAULT_MODE, None), [(name, name) for name in names]
    with (
        WorkerPool(names, groups=self_pairs, layout=layout, log=folder / "workers.log") as pool,
        affinity.avoid_cores(*layout.cores),
    ):
        yield WorkloadProfiler(pool, "cpu-core", solo_s=0.5, block_s=0.6)


PROGRAMS = {
    command.name: command
    for command in (program(BUSY, "busy"), program(WAITING, "waiting"), program("raise SystemExit(3)", "failing"))
}


@contextmanager
def open_program_profiler(folder: Path, names: tuple[str, ...]) -> Iterator[ProgramProfiler]:
    core = affinity.pick_core()
    commands = tuple(PROGRAMS[name] for name in names)
    config = CommandConfig(out=folder, commands=commands, core=core, window_s=0.5, repeats=1, limit_s=20.0, grace_s=0.5)
    with affinity.avoid_cores(core):
        yield ProgramProfiler(folder / "runs", config, core)


@contextmanager
def open_static_profiler(folder: Path, names: tuple[str, ...]) -> Iterator[StaticProfiler]:
    yield StaticProfiler("h100")


WORKLOADS = Harness[Profiler](
    device_type="cpu-core",
    open=open_workload_profiler,
    workloads=("tests.profiling.sample_workloads:BUSY", "tests.profiling.sample_workloads:waiting"),
    failing="tests.profiling.sample_workloads:failing",
)
EXTERNAL_PROGRAMS = Harness[Profiler](
    device_type="cpu-core", open=open_program_profiler, workloads=("busy", "waiting"), failing="failing"
)
STATIC_TRACES = Harness[SoloProfiler](
    device_type="h100",
    open=open_static_profiler,
    workloads=("tests.profiling.static.sample_factories:linear", "tests.profiling.static.sample_factories:linear_adam"),
    failing="tests.profiling.static.sample_factories:leaves",
)
solo_profilers = pytest.mark.parametrize(
    "harness", [WORKLOADS, EXTERNAL_PROGRAMS, STATIC_TRACES], ids=["workloads", "programs", "static"]
)
pair_profilers = pytest.mark.parametrize("harness", [WORKLOADS, EXTERNAL_PROGRAMS], ids=["workloads", "programs"])


@solo_profilers
def test_a_profile_names_its_workload_and_device_type_and_has_a_step_time(
    tmp_path: Path, harness: Harness[SoloProfiler]
) -> None:
    with harness.open(tmp_path, harness.workloads) as profiler:
        for workload in harness.workloads:
            measured = profiler.profile_solo(workload)
            assert (measured.profile.workload, measured.profile.device_type) == (workload, harness.device_type)
            assert 0 < measured.profile.step_time_s < math.inf
            assert measured.profile.source
            assert math.isnan(measured.steal_frac) or 0 <= measured.steal_frac <= 1


@solo_profilers
def test_a_repeated_profile_is_of_the_same_workload(tmp_path: Path, harness: Harness[SoloProfiler]) -> None:
    workload = harness.workloads[1]
    with harness.open(tmp_path, (workload,)) as profiler:
        first, second = (profiler.profile_solo(workload).profile for _ in range(2))
    assert (first.workload, first.device_type, first.source) == (second.workload, second.device_type, second.source)
    assert 0.02 < first.step_time_s / second.step_time_s < 50


@solo_profilers
def test_a_failing_workload_is_an_error_with_a_remedy_and_leaves_no_process(
    tmp_path: Path, harness: Harness[SoloProfiler]
) -> None:
    before = descendants(os.getpid())
    with pytest.raises(InterfereError) as caught, harness.open(tmp_path, (harness.failing,)) as profiler:
        profiler.profile_solo(harness.failing)
    assert harness.failing in str(caught.value)
    assert caught.value.remedy
    assert all_gone([process for process in descendants(os.getpid()) if process not in before])
    assert not leftovers(tmp_path)


@solo_profilers
def test_a_profiler_leaves_no_process(tmp_path: Path, harness: Harness[SoloProfiler]) -> None:
    before = descendants(os.getpid())
    with harness.open(tmp_path, harness.workloads[:1]) as profiler:
        profiler.profile_solo(harness.workloads[0])
        running = [process for process in descendants(os.getpid()) if process not in before]
    assert all_gone(running)
    assert not leftovers(tmp_path)


@pair_profilers
def test_a_block_answers_both_directions_of_its_request(tmp_path: Path, harness: Harness[Profiler]) -> None:
    first, second = harness.workloads
    with harness.open(tmp_path, harness.workloads) as profiler:
        for workload in harness.workloads:
            profiler.profile_solo(workload)
        for pair in ((second, first), (first, first)):
            block = profiler.measure_block(BlockRequest(members=pair, pass_index=3, attempt=1))
            check_block(block, pair)
            assert (block.pass_index, block.attempt) == (3, 1)
    assert not leftovers(tmp_path)


def check_block(block: MeasuredBlock, pair: tuple[str, str]) -> None:
    assert tuple(side.workload for side in block.sides) == pair
    assert block.key == tuple(sorted(pair))
    assert block.started_at_s > 1.7e9
    assert block.window_s > 0
    assert block.accepted, block.reason
    assert all(MIN_SLOWDOWN <= side.slowdown <= MAX_SLOWDOWN for side in block.sides)
    assert all(side.overlap_frac > 0.9 for side in block.sides)
    assert all(0 < side.slices_counted <= len(side.slices) for side in block.sides)
    assert all(0 < side.log_error < math.inf for side in block.sides)
