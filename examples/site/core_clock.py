"""Cores as devices: which processes run on which core, and a clock of each core that stops while others take it.

Control groups bind the jobs of node k to core k and add up what they use; a further group holds everything else of the
site: Slurm, the policy server, the adapter and the program that submits. The kernel counts how long jobs of node k were
ready and none of them ran (`full` of cpu.pressure, Documentation/accounting/psi.rst). That time is split by what others
and the control plane used of the core meanwhile:

    taken(k) = full pressure of the jobs of k × others ÷ (others + control plane), and what the hypervisor took
    device clock of core k = wall − taken(k);   site clock = wall − mean over the cores of taken(k)

What others use while no job wants the core takes nothing. What the control plane takes stays in the clocks: it counts
against the arm that uses it.
"""

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from interfere.errors import UnfitError

Floats = NDArray[np.float64]
CPUSET, CPUACCT, CPU, PRESSURE = (Path("/sys/fs/cgroup") / name for name in ("cpuset", "cpuacct", "cpu", "unified"))
HIERARCHIES = (CPUSET, CPUACCT, CPU, PRESSURE)
SHARES = 1024  # of cpu.shares: one program's worth, where the system groups programs by session
SAMPLE_S = 0.1
NANOSECONDS, MICROSECONDS = 1e-9, 1e-6
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
CONTROL, PREFIX = "control", "interfere-site-"


class CoreGroups:
    """The control groups of the site: `control`, and one for the jobs of each node. A context manager."""

    def __init__(self, cores: Sequence[int], weight: int = 1) -> None:
        """Use these cores. `weight`: of the whole site against any other program that wants them."""
        self.cores, self.weight, self.name = tuple(cores), weight, f"{PREFIX}{os.getpid()}"
        self.nodes = tuple(f"n{k}" for k in range(len(self.cores)))

    def __enter__(self) -> Self:
        for left in CPUSET.glob(f"{PREFIX}*"):
            if not Path(f"/proc/{left.name.removeprefix(PREFIX)}").exists():
                self._remove(left.name)
        try:
            for name, core in (("", None), (CONTROL, None), *zip(self.nodes, self.cores, strict=True)):
                for hierarchy in HIERARCHIES:
                    (hierarchy / self.name / name).mkdir()
                allowed = (CPUSET / "cpuset.cpus").read_text() if core is None else str(core)
                (CPUSET / self.name / name / "cpuset.mems").write_text((CPUSET / "cpuset.mems").read_text())
                (CPUSET / self.name / name / "cpuset.cpus").write_text(allowed)
            (CPU / self.name / "cpu.shares").write_text(str(SHARES * self.weight))
            self._move_here(CONTROL)
        except OSError as error:
            self._remove(self.name)
            raise UnfitError(
                f"no control groups can be made ({error.strerror})",
                value=error.filename,
                remedy="run as root where /sys/fs/cgroup has cpuset, cpuacct, cpu (version 1) and unified (version 2)",
            ) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._move_here("..")
        self._remove(self.name)

    @property
    def join_command(self) -> str:
        """Shell words by which a job joins the group of its node."""
        files = " ".join(f"{hierarchy}/{self.name}/$SLURMD_NODENAME/cgroup.procs" for hierarchy in HIERARCHIES)
        return f"for file in {files}; do echo $$ >$file; done"

    def used_s(self, name: str = "") -> Floats:
        """Return the processor seconds that a group has used on each core; the whole machine without a name."""
        folder = CPUACCT / self.name / name if name else CPUACCT
        per_core = [float(word) for word in (folder / "cpuacct.usage_percpu").read_text().split()]
        return np.array([per_core[core] * NANOSECONDS for core in self.cores])

    def pressed_s(self, node: str) -> float:
        """Return how long jobs of a node were ready while none of them ran."""
        (full,) = (
            line.rpartition("=")[2]
            for line in (PRESSURE / self.name / node / "cpu.pressure").read_text().splitlines()
            if line.startswith("full")
        )
        return float(full) * MICROSECONDS

    def _move_here(self, name: str) -> None:
        for hierarchy in HIERARCHIES:
            (hierarchy / self.name / name / "cgroup.procs").write_text(str(os.getpid()))

    def _remove(self, site: str) -> None:
        """Remove the groups of a site. Processes that are left in them go to the group above all."""
        for hierarchy in HIERARCHIES:
            for name in (CONTROL, *self.nodes, ""):
                folder = hierarchy / site / name
                with suppress(OSError):
                    for pid in (folder / "cgroup.procs").read_text().split():
                        with suppress(OSError):
                            (hierarchy / "cgroup.procs").write_text(pid)
                    folder.rmdir()


class Reading(NamedTuple):
    """What was used of each core until one moment, in seconds. Each float64[cores]."""

    jobs_s: Floats
    control_s: Floats
    others_s: Floats
    pressed_s: Floats
    stolen_s: Floats  # by the hypervisor

    def __sub__(self, earlier: "Reading") -> "Reading":
        return Reading(*(late - early for late, early in zip(self, earlier, strict=True)))

    @property
    def taken_s(self) -> Floats:
        """What others took from the jobs, of a difference of two readings that are close together."""
        share = self.others_s / np.maximum(self.others_s + self.control_s, NANOSECONDS)
        return np.asarray(self.pressed_s * np.clip(share, 0.0, 1.0) + self.stolen_s)


class CoreClock:
    """Samples the groups ten times a second, and turns Unix times into times of the site and of a device. A context
    manager."""

    def __init__(self, groups: CoreGroups) -> None:
        self._groups, self._stop, self._lock = groups, threading.Event(), threading.Lock()
        self._newest = self._read()
        self._at_s, self._taken_s = [time.time()], [np.zeros(len(groups.cores))]
        self._thread = threading.Thread(target=self._sample, name="core clock", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def now_s(self) -> float:
        """Return the seconds of the site's clock since the start."""
        self.read()
        return float(self.site_s(np.array([self._at_s[-1]]))[0])

    def read(self) -> Reading:
        """Return what was used of each core since the system started."""
        with self._lock:
            newest = self._read()
            self._at_s.append(time.time())
            self._taken_s.append(self._taken_s[-1] + np.maximum((newest - self._newest).taken_s, 0.0))
            self._newest = newest
            return newest

    def site_s(self, unix_s: Floats) -> Floats:
        """Return site times of Unix times. float64[n] -> float64[n]."""
        at_s, taken_s = self._samples()
        return np.asarray(unix_s - at_s[0] - np.interp(unix_s, at_s, taken_s.mean(axis=1)))

    def device_s(self, unix_s: Floats, device: int) -> Floats:
        """Return times of one device's clock. float64[n] -> float64[n]."""
        at_s, taken_s = self._samples()
        return np.asarray(unix_s - at_s[0] - np.interp(unix_s, at_s, taken_s[:, device]))

    def taken_s(self, begin_s: float, end_s: float) -> Floats:
        """Return what others took of each device between two Unix times. float64[cores]."""
        return np.array(
            [
                end_s - begin_s - float(np.diff(self.device_s(np.array([begin_s, end_s]), device))[0])
                for device in range(len(self._groups.cores))
            ]
        )

    def _samples(self) -> tuple[Floats, Floats]:
        with self._lock:
            return np.array(self._at_s), np.array(self._taken_s)

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self.read()

    def _read(self) -> Reading:
        groups = self._groups
        control, stolen = groups.used_s(CONTROL), self._stolen_s()
        jobs = np.sum([groups.used_s(node) for node in groups.nodes], axis=0)
        pressed = np.array([groups.pressed_s(node) for node in groups.nodes])
        return Reading(jobs, control, groups.used_s() - control - jobs, pressed, stolen)

    def _stolen_s(self) -> Floats:
        """Return the seconds that the hypervisor took from each core (proc(5): the eighth number of /proc/stat)."""
        rows = dict(line.split(maxsplit=1) for line in Path("/proc/stat").read_text().splitlines())
        return np.array([float(rows[f"cpu{core}"].split()[7]) * TICK_S for core in self._groups.cores])
