"""Computes what a command did from the marks and samples of its runs: no clock and no process.

Step times come from marks, which lie at ends of steps, so they are exact means over whole steps. CPU time and waiting
come from samples of all processes of a command, interpolated linearly. Third processes took of a pinned core what the
kernel says the core was busy, less what the commands' processes used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from interfere.profiling.slices import CPU, WAIT, Recording, Slice, count_slices, side_slices
from interfere.profiling.trace import Event
from interfere.progress import Mark
from interfere.records import NAN, JobProfile, SoloMeasurement

SOURCE = "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecording:
    """What was recorded of one run of a command."""

    recording: Recording
    private_peak_bytes: float
    max_strayed: int  # largest number of processes at once that might run on other cores

    @property
    def pinning_problem(self) -> str:
        """Why a run that was pinned to a core does not describe it; empty where it does."""
        if not self.max_strayed or self.recording.core is None:
            return ""
        return f"{self.recording.name}: {self.max_strayed} of its processes left the core they were pinned to"


def run_recording(
    name: str,
    marks: Sequence[Mark],
    samples: Sequence[Mapping[str, Any]],
    start_s: float,
    end_s: float,
    *,
    core: int | None,
) -> RunRecording:
    """Arrange marks and samples as arrays. `end_s` is when the command ended or was told to."""
    columns = ("monotonic_s", "cpu_s", "wait_s", "core_busy_s")
    table = np.array(
        [[NAN if row[column] is None else row[column] for column in columns] for row in samples], dtype=np.float64
    ).reshape(-1, len(columns))
    # A child that ends between two looks at a sample moves its time to its parent: never let the sums go back.
    for column in (CPU, WAIT):
        table[:, column] = np.maximum.accumulate(table[:, column])
    events = [(start_s, 0.0, 0.0, float(Event.START))]
    events += [(mark.monotonic_s, NAN, mark.steps, float(Event.STEP)) for mark in marks if mark.monotonic_s <= end_s]
    events.append((end_s, NAN, events[-1][2], float(Event.STOP)))
    return RunRecording(
        recording=Recording(name=name, trace=np.array(events), core=core, samples=table),
        private_peak_bytes=max((row["private_bytes"] for row in samples), default=NAN),
        max_strayed=max((row["strayed"] for row in samples), default=0),
    )


def solo_measurement(
    runs: Sequence[tuple[RunRecording, Sequence[Slice]]], device_type: str, usual_clock_s: float
) -> SoloMeasurement:
    """Profile of a command from its runs alone, each with the slices of its window.

    CPU time and memory describe the device only where that is the core to which the command is pinned; elsewhere they
    are unknown (NaN).
    """
    slices = [each for run, windows in runs for each in side_slices(0, (run.recording,), windows)]
    counted, recording = count_slices(slices, usual_clock_s), runs[0][0].recording
    pinned = recording.core is not None
    profile = JobProfile(
        workload=recording.name,
        device_type=device_type,
        source=SOURCE,
        step_time_s=counted.wall_s / counted.steps,
        step_time_sd_s=counted.step_time_sd_s,
        busy_frac=min(1.0, counted.cpu_s / counted.wall_s) if pinned else NAN,
        memory_peak_bytes=max(run.private_peak_bytes for run, _ in runs) if pinned else NAN,
    )
    taken_s, wall_s = sum(each.taken_s for each in slices), sum(each.wall_s for each in slices)
    return SoloMeasurement(profile=profile, steal_frac=min(1.0, taken_s / wall_s) if pinned else NAN)
