"""The memory that jobs hold on this node: read from control groups, process trees or a GPU's driver, cut into windows.

A sample is one number a job and device, in this order of preference:

- on a GPU: the sum over the job's processes of what the driver says that each holds there (nvidia-smi, compute-apps);
- in a control group of its own: its working set, usage less the page cache that the kernel would give back first, as
  cAdvisor and the kubelet define it: v1 `memory.usage_in_bytes` - `total_inactive_file`, v2 `memory.current` -
  `inactive_file`;
- else the sum of resident pages of no file and no shared memory over the job's process tree.

Law 1: a window states what was sampled: it begins and ends at a sample, its largest and least amounts are those of its
samples, and no two successive samples of it are further apart than `max_gap_s`. Law 2: consecutive windows of a job
share the sample between them, so together they cover all the time that was sampled. Law 3: a window ends at each sample
beside which the job holds more than its limit, so that excess is known at once; otherwise after `report_every_s`.
"""

import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from interfere.errors import InterfereError, InvalidInputError, UnfitError
from interfere.profiling.nvidia_smi import gpu_processes
from interfere.profiling.programs.process_tree import PROC, ProcessTable
from interfere.records import NAN, MemoryUsage

_log = logging.getLogger("interfere.agent")
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class _CgroupFiles:
    """The names of the files of one version of control groups."""

    usage: str
    inactive_file: str  # a line of memory.stat
    limit: str


_FILES = {
    1: _CgroupFiles("memory.usage_in_bytes", "total_inactive_file", "memory.limit_in_bytes"),
    2: _CgroupFiles("memory.current", "inactive_file", "memory.max"),
}


@dataclass(frozen=True, slots=True)
class MemoryCgroup:
    """A memory control group of either version, by its folder."""

    folder: Path

    @property
    def _files(self) -> _CgroupFiles:
        return _FILES[1 if (self.folder / _FILES[1].usage).exists() else 2]

    def working_set_bytes(self) -> float:
        """Return what its processes hold, in bytes; NaN where the group does not exist any more."""
        try:
            usage = float((self.folder / self._files.usage).read_text())
            rows = (line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
            return max(0.0, usage - float(dict(rows).get(self._files.inactive_file, "0")))
        except (OSError, ValueError):
            return NAN

    def process_ids(self) -> tuple[int, ...]:
        """Return the ids of the processes in the group and in the groups below it; none where it is gone."""
        found: list[int] = []
        for folder, _, files in os.walk(self.folder):
            if "cgroup.procs" in files:
                try:
                    found += map(int, (Path(folder) / "cgroup.procs").read_text().split())
                except (OSError, ValueError):
                    continue
        return tuple(found)

    def child(self, name: str, limit_bytes: float) -> "MemoryCgroup":
        """Return a new group below this one, with a limit in bytes (NaN: none). Raises UnfitError."""
        made = MemoryCgroup(self.folder / name)
        try:
            made.folder.mkdir()
            if not math.isnan(limit_bytes):
                (made.folder / made._files.limit).write_text(f"{limit_bytes:.0f}")
        except OSError as error:
            made.remove()
            raise UnfitError(
                f"no memory control group can be made ({error.strerror})",
                value=made.folder,
                remedy="run as root, in a unit with Delegate=yes, or leave the limit out",
            ) from None
        return made

    def enter(self) -> None:
        """Move the calling process into the group. Raises OSError."""
        (self.folder / "cgroup.procs").write_text("0")

    def remove(self) -> None:
        """Remove the group; one that still holds processes, or is gone already, stays as it is."""
        try:
            self.folder.rmdir()
        except OSError:
            return


def cgroup_of(pid: int | str, *, proc: Path = PROC, root: Path = CGROUPS) -> MemoryCgroup | None:
    """Return the memory control group of a process; None where the process or the controller is not there."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    unified = None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return MemoryCgroup(root / "memory" / path.lstrip("/"))
        if not controllers:
            unified = MemoryCgroup(root / path.lstrip("/"))
    return unified if unified is not None and (unified.folder / _FILES[2].usage).exists() else None


def pod_cgroup(uid: str, *, root: Path | None = None) -> MemoryCgroup | None:
    """Return the memory control group of a pod; None where there is none.

    The kubelet names it by the pod's uid: `kubepods/burstable/podUID`, and with systemd's driver
    `kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice` with _ in place of -.
    """
    root = root or CGROUPS
    top = root / "memory" if (root / "memory").is_dir() else root
    names = (f"pod{uid}", f"pod{uid.replace('-', '_')}.slice")
    found = (path for path in top.glob("kubepods*/**/*pod*") if path.is_dir() and path.name.endswith(names))
    return next((MemoryCgroup(path) for path in sorted(found)), None)


# --- windows ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedJob:
    """A job that the agent was told of, and where its memory is read."""

    id: str
    run_id: str  # prefix of the ids of its windows; it changes when the job is restarted
    workload: str
    device_id: str
    device_type: str
    gpu_uuid: str = ""  # of its device; empty: the memory of the host counts
    limit_bytes: float = math.inf  # more than this is more than its grant and its tolerance
    cgroup: MemoryCgroup | None = None  # its own; None: its process tree is measured
    pids: tuple[int, ...] = ()


def limit_of(granted_bytes: float, tolerance: float) -> float:
    """Return what a job may hold by its grant and a tolerance; without a grant (NaN or 0) anything."""
    return granted_bytes * (1.0 + tolerance) if granted_bytes > 0 else math.inf


GpuTable = Mapping[str, Mapping[int, float]]
"""Bytes of device memory by the UUID of a GPU that answered, and by the id of a process."""


def held_bytes(job: WatchedJob, processes: ProcessTable, gpu_table: GpuTable) -> float:
    """Return the bytes that a job holds on its device now; NaN where nothing can be read."""
    if job.gpu_uuid:
        on_gpu = gpu_table.get(job.gpu_uuid)
        return NAN if on_gpu is None else sum(on_gpu.get(pid, 0.0) for pid in job.pids)
    if job.cgroup is not None:
        return job.cgroup.working_set_bytes()
    return processes.private_bytes(job.pids) if job.pids else NAN


@dataclass(slots=True)
class _OpenWindow:
    start_s: float
    end_s: float
    least_bytes: float
    most_bytes: float
    last_bytes: float


@dataclass(slots=True)
class MemoryWindows:
    """Cuts the samples of jobs into windows (laws in the module's docstring)."""

    report_every_s: float
    max_gap_s: float
    _open: dict[tuple[str, str], _OpenWindow] = field(default_factory=dict)

    def add(self, job: WatchedJob, at_s: float, used_bytes: float) -> list[tuple[float, float, float, float]]:
        """Add a sample, and return the windows that it completes: (start, end, least bytes, most bytes).

        A sample that is not known (NaN), or not later than the last one, adds nothing.
        """
        key, done = (job.run_id, job.device_id), list[tuple[float, float, float, float]]()
        window = self._open.get(key)
        if math.isnan(used_bytes) or (window is not None and at_s <= window.end_s):
            return done
        if window is None or at_s - window.end_s > self.max_gap_s:
            done += _closed(window)
            self._open[key] = _OpenWindow(at_s, at_s, used_bytes, used_bytes, used_bytes)
            return done
        if window.last_bytes <= job.limit_bytes < used_bytes and window.end_s > window.start_s:
            done += _closed(window)
            last = window.last_bytes
            window = self._open[key] = _OpenWindow(window.end_s, window.end_s, last, last, last)
        is_over = max(window.last_bytes, used_bytes) > job.limit_bytes
        window.end_s, window.last_bytes = at_s, used_bytes
        window.least_bytes, window.most_bytes = min(window.least_bytes, used_bytes), max(window.most_bytes, used_bytes)
        if is_over or at_s - window.start_s >= self.report_every_s:
            done += _closed(window)
            self._open[key] = _OpenWindow(at_s, at_s, used_bytes, used_bytes, used_bytes)
        return done

    def forget_others(self, run_ids: Iterable[str]) -> None:
        """Forget the open windows of all jobs but these."""
        kept = set(run_ids)
        self._open = {key: window for key, window in self._open.items() if key[0] in kept}


def _closed(window: _OpenWindow | None) -> list[tuple[float, float, float, float]]:
    if window is None or window.end_s <= window.start_s:
        return []
    return [(window.start_s, window.end_s, window.least_bytes, window.most_bytes)]


def memory_usages(
    jobs: Sequence[WatchedJob],
    windows: MemoryWindows,
    gpu_table: GpuTable,
    now_s: float,
    prefix: str,
    processes: ProcessTable,
) -> tuple[MemoryUsage, ...]:
    """Sample every job once, and return the windows that are complete by that. `prefix`: of the observations' ids."""
    found = list[MemoryUsage]()
    for job in jobs:
        for start_s, end_s, least_bytes, most_bytes in windows.add(job, now_s, held_bytes(job, processes, gpu_table)):
            try:
                found.append(
                    MemoryUsage(
                        observation_id=f"{prefix}/{job.run_id}/{job.device_id}/memory/{start_s:.3f}",
                        job_id=job.id,
                        workload=job.workload,
                        device_type=job.device_type,
                        device_id=job.device_id,
                        bytes=most_bytes,
                        min_bytes=least_bytes,
                        start_s=start_s,
                        end_s=end_s,
                    )
                )
            except InvalidInputError:  # a name that no record may hold: the job is not reported
                continue
    windows.forget_others(job.run_id for job in jobs)
    return tuple(found)


class MemoryWatch:
    """Samples what jobs hold, and finds those that began to hold more than their limits."""

    def __init__(self, report_every_s: float, max_gap_s: float, patience_s: float) -> None:
        """`patience_s`: after which a job that holds more than its limit is ended."""
        self._windows, self._patience_s = MemoryWindows(report_every_s, max_gap_s), patience_s
        self._above = set[str]()  # run ids of jobs that were named already

    def sample(
        self, jobs: Sequence[WatchedJob], now_s: float, prefix: str, processes: ProcessTable
    ) -> tuple[tuple[MemoryUsage, ...], dict[str, str]]:
        """Sample every job once. Returns the windows that are complete by that, and the warnings by run id.

        A job is warned once until it holds less again.
        """
        gpu_table = memory_on_gpus({job.gpu_uuid for job in jobs if job.gpu_uuid})
        usages = memory_usages(jobs, self._windows, gpu_table, now_s, prefix, processes)
        job_of, warnings = {job.id: job for job in jobs}, dict[str, str]()
        self._above &= {job.run_id for job in jobs}
        for usage in usages:
            job = job_of[usage.job_id]
            if not usage.min_bytes > job.limit_bytes:
                self._above.discard(job.run_id)
                warnings.pop(job.run_id, None)
            elif job.run_id not in self._above or job.run_id in warnings:
                self._above.add(job.run_id)
                sizes = f"{usage.bytes / 2**30:.3g} GiB, more than the {job.limit_bytes / 2**30:.3g} GiB"
                what = f"it holds {sizes} that its grant allows"
                warnings[job.run_id] = f"{what}; a job that does so for {self._patience_s:g} s is ended"
        return usages, warnings


def memory_on_gpus(uuids: Iterable[str]) -> dict[str, dict[int, float]]:
    """Return the bytes of each process on each of these GPUs; one whose driver does not answer is left out."""
    table: dict[str, dict[int, float]] = {}
    for uuid in uuids:
        try:
            table[uuid] = {row.pid: row.memory_bytes for row in gpu_processes(uuid)}
        except InterfereError as error:
            _log.warning("memory on %s is not known: %s", uuid, error.one_line)
    return table
