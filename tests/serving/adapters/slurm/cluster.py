"""A real Slurm of several nodes in a temporary folder: own ports, no munge, no systemd; stopped by its pid files."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import interfere.serving.adapters.slurm as adapter
from tests.waiting import PATIENCE_S, free_port

FILES = Path(adapter.__file__).parent / "files"
PROGRAM = Path(__file__).with_name("program.py")
ROOT = Path(__file__).parents[4]
GPUS = ("g0", "g1")
DEVICES = ("/dev/null", "/dev/zero")  # Slurm wants character devices; nothing is done to them


@dataclass(kw_only=True)
class Cluster:
    """Two nodes of two GPUs of two shards each, or of more."""

    folder: Path
    nodes: int = 2
    shards: int = 2  # of each GPU
    defers: bool = True
    window_s: float = 12.0  # shorter than a site's: tests wait for it; a slow machine decides within it
    options: Sequence[str] = ()  # further lines of slurm.conf
    running: list["subprocess.Popen[Any]"] = field(default_factory=list)

    @property
    def spool(self) -> Path:
        return self.folder / "marks"

    @property
    def shared(self) -> Path:
        return self.folder / "shared"

    @property
    def env(self) -> dict[str, str]:
        path = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
        return os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf"), "PYTHONPATH": path}

    def start(self) -> "Cluster":
        """Write the configuration, start the daemons, wait until all nodes are idle."""
        for name in ("state", "marks", "shared", *(f"spool.n{k}" for k in range(self.nodes))):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._configure()
        for k in range(self.nodes):
            self.run(shutil.which("slurmd") or "slurmd", "-N", f"n{k}", "-c")
        self.start_controller("-c")
        self.wait(lambda: self.run("sinfo", "-h", "-o", "%D %t").strip() == f"{self.nodes} idle")
        return self

    def start_controller(self, *options: str) -> None:
        self.run(shutil.which("slurmctld") or "slurmctld", *options)

    def stop_controller(self) -> None:
        stop_by_pid_file(self.folder / "slurmctld.pid")

    def stop(self) -> None:
        """Advisors, daemons, then the jobs they leave."""
        for one in self.running:
            one.kill()
            one.communicate()
        for pid in sorted(self.folder.glob("*.pid")):
            stop_by_pid_file(pid)
        for left in _started_with(self.folder / "slurm.conf"):  # steps and jobs outlive their daemons
            with suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)

    def submit(self, workload: str, steps: int, *options: str, step_s: float = 0.1, memory_gib: float = 0.0) -> str:
        """A job of one shard; its id. `memory_gib`: what it says that it needs; 0: nothing."""
        memory = f";memory_gib={memory_gib:g}" if memory_gib else ""
        command = f"exec {sys.executable} {PROGRAM} {workload} {steps} {step_s} {self.shared}"
        return self.run(
            "sbatch",
            "--parsable",
            "--gres=shard:1",
            f"--comment=interfere:workload={workload}{memory}",
            "--output",
            str(self.folder / "out.%j"),
            *options,
            "--wrap",
            command,
        ).strip()

    def scontrol(self, *arguments: str) -> str:
        return self.run("scontrol", *arguments)

    def cancel(self, job: str) -> None:
        self.run("scancel", job)

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Everything `squeue` knows, by job id."""
        return {str(row["job_id"]): row for row in json.loads(self.run("squeue", "--json"))["jobs"]}

    def states(self, ids: Sequence[str]) -> list[str]:
        jobs = self.jobs()
        return [jobs[one]["job_state"] for one in ids]

    def runs(self) -> dict[str, list[dict[str, Any]]]:
        """What the jobs wrote at their ends, by job id."""
        found: dict[str, list[dict[str, Any]]] = {}
        for path in self.shared.glob("run.*"):
            result = json.loads(path.read_text())
            found.setdefault(result["job"], []).append(result)
        return found

    def wait(self, ready: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        end_s = time.monotonic() + within_s
        while not ready():
            assert time.monotonic() < end_s, f"not within {within_s:g} s:\n{self.describe()}"
            time.sleep(0.1)

    def wait_started(self, ids: Sequence[str]) -> None:
        self.wait(lambda: not {"PENDING", "CONFIGURING"} & set(self.states(ids)), self.window_s + PATIENCE_S)

    def wait_ended(self, ids: Sequence[str]) -> None:
        over = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}
        self.wait(lambda: not over & set(self.states(ids)), self.window_s + PATIENCE_S)

    def describe(self) -> str:
        said = subprocess.run(
            ["timeout", "5", "squeue", "-o", "%i %T %R %b %S %k"],
            env=self.env,
            check=False,
            capture_output=True,
            text=True,
        )
        log = (self.folder / "slurmctld.log").read_text(errors="replace").splitlines()[-25:]
        return said.stdout + said.stderr + "\n".join(log)

    def settings(self, server: str, *device_lines: str, **more: object) -> Path:
        """A settings file of the advisor for this cluster; `device_lines`: further ones of its GPUs."""
        values = {
            "server": server,
            "cluster": "test",
            "spool": str(self.spool),
            "lock": str(self.folder / "advisor.lock"),
            "interval_s": 0.5,
            "window_s": self.window_s,
            "timeout_s": 10.0,
            "start_s": 30.0,
            "least_window_s": 1.0,
            "metrics": str(self.folder / "advisor.prom"),
        } | more
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        path = self.folder / "advisor.toml"
        path.write_text("\n".join([*lines, "[[devices]]", 'type = "cpu-core"', 'nodes = "n*"', *device_lines]) + "\n")
        return path

    def advise(self, settings: Path, *options: str, path: Path | None = None) -> "subprocess.Popen[str]":
        """The advisor in a process of its own; one JSON line a round."""
        env = self.env | ({"PATH": f"{path}:{os.environ['PATH']}"} if path else {})
        started = subprocess.Popen(
            [sys.executable, "-m", "interfere", "slurm", "advise", "--config", str(settings), "--json", *options],
            env=env,
            stdout=(self.folder / "advisor.out").open("a"),
            stderr=(self.folder / "advisor.err").open("a"),
            text=True,
        )
        self.running.append(started)
        return started

    def interfere(self, *arguments: object) -> None:
        """A command of ours, to its end."""
        self.run(sys.executable, "-m", "interfere", *map(str, arguments))

    def answers(self) -> bool:
        """Is slurmctld there?"""
        said = subprocess.run(["timeout", "10", "squeue", "-h"], env=self.env, check=False, capture_output=True)
        return said.returncode == 0

    def next_round(self) -> None:
        """Wait until the advisor is at work."""
        before = len(self.rounds())
        self.wait(lambda: len(self.rounds()) > before)

    def rounds(self) -> list[dict[str, Any]]:
        """What the advisor printed so far."""
        lines = (self.folder / "advisor.out").read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def run(self, *command: str) -> str:
        ran = subprocess.run(
            ["timeout", "60", *command], env=self.env, check=False, capture_output=True, text=True, cwd=self.folder
        )
        assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def _configure(self) -> None:
        here = self.folder
        ports = [free_port() for _ in range(1 + self.nodes)]
        for name in ("prolog.sh", "task_prolog.sh", "epilog.sh"):
            wrapped = here / name
            wrapped.write_text(f"#!/bin/sh\nINTERFERE_SPOOL={self.spool} exec {FILES / name}\n")
            wrapped.chmod(0o755)
        script = (FILES / "job_submit.lua").read_text().replace("WINDOW_S = 20", f"WINDOW_S = {self.window_s:.0f}")
        (here / "job_submit.lua").write_text(script)
        gres = ",".join([*(f"gpu:{g}:1" for g in GPUS), *(f"shard:{g}:{self.shards}" for g in GPUS)])
        rows = [f"Name=gpu Type={g} File={f}" for g, f in zip(GPUS, DEVICES, strict=True)]
        rows += [f"Name=shard Type={g} Count={self.shards} File={f}" for g, f in zip(GPUS, DEVICES, strict=True)]
        (here / "gres.conf").write_text("\n".join(["AutoDetect=off", *rows]) + "\n")
        nodes = [
            f"NodeName=n{k} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=8000 Gres={gres}"
            for k, port in enumerate(ports[1:])
        ]
        (here / "slurm.conf").write_text(
            "\n".join(
                [
                    "ClusterName=interfere",
                    "SlurmctldHost=localhost(127.0.0.1)",
                    f"SlurmctldPort={ports[0]}",
                    "SlurmUser=root",
                    "SlurmdUser=root",
                    "AuthType=auth/none",
                    "CredType=cred/none",
                    "ProctrackType=proctrack/linuxproc",
                    "TaskPlugin=task/none",
                    "SelectType=select/cons_tres",
                    "SelectTypeParameters=CR_Core",
                    "GresTypes=gpu,shard",
                    "SlurmdParameters=config_overrides",
                    "SchedulerParameters=bf_interval=2,sched_interval=2,sched_min_interval=0",
                    "MinJobAge=300",
                    "ReturnToService=2",
                    "MailProg=/bin/true",
                    "KillWait=2",
                    f"StateSaveLocation={here}/state",
                    f"SlurmdSpoolDir={here}/spool.%n",
                    f"SlurmctldPidFile={here}/slurmctld.pid",
                    f"SlurmdPidFile={here}/slurmd.%n.pid",
                    f"SlurmctldLogFile={here}/slurmctld.log",
                    f"SlurmdLogFile={here}/slurmd.%n.log",
                    f"Prolog={here}/prolog.sh",
                    f"TaskProlog={here}/task_prolog.sh",
                    f"Epilog={here}/epilog.sh",
                    *(["JobSubmitPlugins=lua"] if self.defers else []),
                    *self.options,
                    *nodes,
                    "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
                ]
            )
            + "\n"
        )


def stop_by_pid_file(pid_file: Path) -> None:
    """End the daemon, by SIGKILL if it takes longer than ten seconds."""
    try:
        pid = int(pid_file.read_text())
        os.kill(pid, signal.SIGTERM)
    except (OSError, ValueError):
        return
    end = time.monotonic() + 10
    while _alive(pid):
        if time.monotonic() > end:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    pid_file.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    """A dead daemon may stay a zombie here."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _started_with(configuration: Path) -> list[int]:
    """Processes of this cluster, by the environment that all of them inherit."""
    wanted, found = f"SLURM_CONF={configuration}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found
