"""A real Slurm of several nodes on this machine, in one folder: own ports, no munge or systemd; ended by its pid files.

The daemons run as root. Adapter and job scripts are those that ship: `job_submit.lua`, prologs and the epilog.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import interfere.serving.adapters.slurm as adapter

FILES = Path(adapter.__file__).parent / "files"
ROOT = Path(__file__).parents[2]
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scontrol")
PACKAGES = "slurmctld slurmd slurm-client slurm-wlm-basic-plugins"
DEVICES = ("/dev/null", "/dev/zero")  # Slurm wants character devices; nothing is done to them
BUSY = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")
ADVISOR = ("interfere", "slurm", "advise", "--json", "--config")  # a module and its arguments; then the settings
COMMAND_S = 60.0  # Slurm's commands hang while slurmctld does not answer


def any_free_port() -> int:
    """Return a port of the loopback on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@dataclass(kw_only=True)
class SlurmCluster:
    """Nodes n0, n1, ... of the GPUs g0, g1, ..., each of several shards. Raises AssertionError where a command fails
    or something does not happen in time."""

    folder: Path
    nodes: int = 2
    gpus: int = 2  # of each node
    shards: int = 2  # of each GPU
    defers: bool = True
    window_s: float = 12.0  # of the deferral; shorter than a site's
    options: Sequence[str] = ()  # further lines of slurm.conf
    scheduler: str = "bf_interval=2,sched_interval=2,sched_min_interval=0"  # SchedulerParameters
    partition_options: str = ""
    patience_s: float = 120.0
    free_port: Callable[[], int] = any_free_port
    running: list["subprocess.Popen[Any]"] = field(default_factory=list)

    @property
    def spool(self) -> Path:
        """The folder of step marks."""
        return self.folder / "marks"

    @property
    def env(self) -> dict[str, str]:
        """The environment of every process of the cluster."""
        path = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
        return os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf"), "PYTHONPATH": path}

    # --- daemons ------------------------------------------------------------------------------------------------------

    def start(self) -> "SlurmCluster":
        """Write the configuration, start the daemons, wait until all nodes are idle."""
        for name in ("state", "marks", *(f"spool.n{k}" for k in range(self.nodes))):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._configure()
        for k in range(self.nodes):
            self.run(shutil.which("slurmd") or "slurmd", "-N", f"n{k}", "-c")
        self.start_controller("-c")
        self.wait(lambda: self.run("sinfo", "-h", "-o", "%D %t").strip() == f"{self.nodes} idle")
        return self

    def start_controller(self, *options: str) -> None:
        """Start slurmctld."""
        self.run(shutil.which("slurmctld") or "slurmctld", *options)

    def stop_controller(self) -> None:
        """End slurmctld."""
        stop_by_pid_file(self.folder / "slurmctld.pid")

    def stop(self) -> None:
        """End the programs beside the cluster, the daemons, then the jobs that they leave."""
        for program in self.running:
            program.kill()
            program.communicate()
        for pid_file in sorted(self.folder.glob("*.pid")):
            stop_by_pid_file(pid_file)
        for pid in _started_with(self.folder / "slurm.conf"):  # steps and jobs outlive their daemons
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def answers(self) -> bool:
        """Return whether slurmctld answers."""
        answer = subprocess.run(["timeout", "10", "squeue", "-h"], env=self.env, check=False, capture_output=True)
        return answer.returncode == 0

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def sbatch(self, command: str, *options: str) -> str:
        """Submit a shell command as a job, and return its id."""
        output = str(self.folder / "out.%j")
        return self.run("sbatch", "--parsable", "--output", output, *options, "--wrap", command).strip()

    def scontrol(self, *arguments: str) -> str:
        """Return what scontrol prints."""
        return self.run("scontrol", *arguments)

    def cancel(self, job: str) -> None:
        """Cancel a job."""
        self.run("scancel", job)

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Return everything that `squeue` knows, by job id."""
        return {str(row["job_id"]): row for row in json.loads(self.run("squeue", "--json"))["jobs"]}

    def states(self, ids: Sequence[str]) -> list[str]:
        """Return the states of jobs."""
        jobs = self.jobs()
        return [jobs[job]["job_state"] for job in ids]

    def wait(self, ready: Callable[[], bool], within_s: float | None = None) -> None:
        """Return as soon as a condition holds."""
        within_s = self.patience_s if within_s is None else within_s
        end_s = time.monotonic() + within_s
        while not ready():
            assert time.monotonic() < end_s, f"not within {within_s:g} s:\n{self.describe()}"
            time.sleep(0.1)

    def wait_started(self, ids: Sequence[str]) -> None:
        """Wait until no job of these is pending."""
        self.wait(lambda: not {"PENDING", "CONFIGURING"} & set(self.states(ids)), self.window_s + self.patience_s)

    def wait_ended(self, ids: Sequence[str], within_s: float | None = None) -> None:
        """Wait until all these jobs are over."""
        limit_s = self.window_s + self.patience_s if within_s is None else within_s
        self.wait(lambda: not set(BUSY) & set(self.states(ids)), limit_s)

    def describe(self) -> str:
        """Return the queue, and the end of the controller's log."""
        queue = subprocess.run(
            ["timeout", "5", "squeue", "-o", "%i %T %r %R %b %S %k"],
            env=self.env,
            check=False,
            capture_output=True,
            text=True,
        )
        log = (self.folder / "slurmctld.log").read_text(errors="replace").splitlines()[-25:]
        return queue.stdout + queue.stderr + "\n".join(log)

    # --- the adapter --------------------------------------------------------------------------------------------------

    def write_settings(self, values: Mapping[str, object], *device_lines: str) -> Path:
        """Write a settings file of the adapter for this cluster. `device_lines`: further ones about its GPUs."""
        here = {
            "spool": str(self.spool),
            "lock": str(self.folder / "advisor.lock"),
            "window_s": self.window_s,
            "metrics": str(self.folder / "advisor.prom"),
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in (here | dict(values)).items()]
        path = self.folder / "advisor.toml"
        path.write_text("\n".join([*lines, "[[devices]]", 'nodes = "n*"', *device_lines]) + "\n")
        return path

    def advise(
        self, settings: Path, *options: str, path: Path | None = None, program: Sequence[str] = ADVISOR
    ) -> "subprocess.Popen[str]":
        """Start the adapter in a process of its own, which prints one JSON line a round. `path`: a folder of commands
        that stand before Slurm's; `program`: a module and its arguments before the settings file."""
        env = self.env | ({"PATH": f"{path}:{os.environ['PATH']}"} if path else {})
        started = subprocess.Popen(
            [sys.executable, "-m", *program, str(settings), *options],
            env=env,
            stdout=(self.folder / "advisor.out").open("a"),
            stderr=(self.folder / "advisor.err").open("a"),
            text=True,
        )
        self.running.append(started)
        return started

    def rounds(self) -> list[dict[str, Any]]:
        """Return what the adapter printed so far."""
        lines = (self.folder / "advisor.out").read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def next_round(self) -> None:
        """Wait until the adapter has completed a round."""
        before = len(self.rounds())
        self.wait(lambda: len(self.rounds()) > before)

    def run(self, *command: str) -> str:
        """Run a command to its end, and return what it printed."""
        done = subprocess.run(
            ["timeout", str(COMMAND_S), *command],
            env=self.env,
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    # --- configuration ------------------------------------------------------------------------------------------------

    def _configure(self) -> None:
        here = self.folder
        names = [f"g{k}" for k in range(self.gpus)]
        ports = [self.free_port() for _ in range(1 + self.nodes)]
        for name in ("prolog.sh", "task_prolog.sh", "epilog.sh"):
            wrapped = here / name
            wrapped.write_text(f"#!/bin/sh\nINTERFERE_SPOOL={self.spool} exec {FILES / name}\n")
            wrapped.chmod(0o755)
        script = (FILES / "job_submit.lua").read_text().replace("WINDOW_S = 20", f"WINDOW_S = {self.window_s:.0f}")
        (here / "job_submit.lua").write_text(script)
        gres = ",".join([*(f"gpu:{g}:1" for g in names), *(f"shard:{g}:{self.shards}" for g in names)])
        files = [f"{name} File={file}" for name, file in zip(names, DEVICES, strict=False)]
        rows = [f"Name=gpu Type={file}" for file in files]
        rows += [f"Name=shard Count={self.shards} Type={file}" for file in files]
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
                    f"SchedulerParameters={self.scheduler}",
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
                    f"PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP {self.partition_options}",
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
    end_s = time.monotonic() + 10
    while _alive(pid):
        if time.monotonic() > end_s:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    pid_file.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    """Return whether a process runs. A dead daemon may stay a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _started_with(configuration: Path) -> list[int]:
    """Return the processes of a cluster, by the environment that all of them inherit."""
    wanted, pids = f"SLURM_CONF={configuration}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                pids.append(int(path.parent.name))
    return pids
