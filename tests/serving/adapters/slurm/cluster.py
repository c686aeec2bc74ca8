"""The real Slurm of the tests: nodes of two GPUs of two shards each, whose jobs slow themselves by a known table."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.site.slurm_cluster import FILES, ROOT, SlurmCluster, stop_by_pid_file
from tests.waiting import PATIENCE_S, free_port

__all__ = ["FILES", "ROOT", "Cluster", "stop_by_pid_file"]
PROGRAM = Path(__file__).with_name("program.py")


@dataclass(kw_only=True)
class Cluster(SlurmCluster):
    """A real Slurm, and the jobs of the tests."""

    patience_s: float = PATIENCE_S
    free_port: Callable[[], int] = free_port
    gres: Sequence[str] = ()  # types of the GPUs of each node in place of g0, g1, ...

    @property
    def shared(self) -> Path:
        return self.folder / "shared"

    def start(self) -> "Cluster":
        self.shared.mkdir(parents=True, exist_ok=True)
        super().start()
        return self

    def _configure(self) -> None:
        super()._configure()
        for file in (self.folder / "gres.conf", self.folder / "slurm.conf"):
            text = file.read_text()
            for k, name in enumerate(self.gres):
                text = re.sub(rf"\b(Type=|gpu:|shard:)g{k}\b", rf"\g<1>{name}", text)
            file.write_text(text)

    def submit(self, workload: str, steps: int, *options: str, step_s: float = 0.1, memory_gib: float = 0.0) -> str:
        """A job of one shard; its id. `memory_gib`: what it says that it needs; 0: nothing."""
        memory = f";memory_gib={memory_gib:g}" if memory_gib else ""
        command = f"exec {sys.executable} {PROGRAM} {workload} {steps} {step_s} {self.shared}"
        return self.sbatch(command, "--gres=shard:1", f"--comment=interfere:workload={workload}{memory}", *options)

    def runs(self) -> dict[str, list[dict[str, Any]]]:
        """What the jobs wrote at their ends, by job id."""
        found: dict[str, list[dict[str, Any]]] = {}
        for path in self.shared.glob("run.*"):
            result = json.loads(path.read_text())
            found.setdefault(result["job"], []).append(result)
        return found

    def settings(self, server: str, *device_lines: str, **more: object) -> Path:
        """A settings file of the advisor for this cluster; `device_lines`: further ones of its GPUs."""
        values = {
            "server": server,
            "cluster": "test",
            "interval_s": 0.5,
            "timeout_s": 10.0,
            "start_s": 30.0,
            "least_window_s": 1.0,
        }
        return self.write_settings(values | more, 'type = "cpu-core"', *device_lines)

    def interfere(self, *arguments: object) -> None:
        """A command of ours, to its end."""
        self.run(sys.executable, "-m", "interfere", *map(str, arguments))
