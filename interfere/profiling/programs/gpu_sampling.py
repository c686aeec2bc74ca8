"""Samples one GPU while a command runs alone on it, and adds what was seen to the command's profile.

Memory is what the device uses above what it used before the command started: the sum over its processes is not known
inside a container, whose process ids are not those of the driver.
"""

import math
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from types import TracebackType
from typing import Self

from interfere.profiling.nvidia_smi import GpuSample, parse_rows, parse_sample, sample_command, sample_gpu
from interfere.records import NAN, JobProfile

PERIOD_S = 0.5  # the driver averages utilisation over up to a second (nvidia-smi manual, Utilization)
END_S = 5.0


@dataclass(slots=True)
class GpuSampler:
    """Samples a GPU from entering to leaving; without a GPU it does nothing."""

    gpu_uuid: str
    samples: list[GpuSample] = field(default_factory=list)
    _process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        if self.gpu_uuid:
            command = sample_command(self.gpu_uuid, PERIOD_S)
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            text, _ = self._process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            text, _ = self._process.communicate()
        complete = text[: text.rfind("\n") + 1]
        self.samples += [parse_sample(row) for row in parse_rows(complete)]


def memory_before(gpu_uuid: str) -> float:
    """Bytes in use on the GPU now; NaN without a GPU."""
    return sample_gpu(gpu_uuid).memory_used_bytes if gpu_uuid else NAN


def with_gpu_facts(profile: JobProfile, samples: Sequence[GpuSample], memory_before_bytes: float) -> JobProfile:
    """The profile with mean utilisation and power, and the peak of memory above what was in use before."""
    if not samples:
        return profile
    used = [each.memory_used_bytes - memory_before_bytes for each in samples]
    known = [each for each in used if not math.isnan(each)]
    return replace(
        profile,
        gpu_util_frac=_mean([each.gpu_util_frac for each in samples]),
        memory_util_frac=_mean([each.memory_util_frac for each in samples]),
        power_w=_mean([each.power_w for each in samples]),
        memory_peak_bytes=max(0.0, *known) if known else NAN,
    )


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else NAN
