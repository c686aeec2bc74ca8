"""One run of the site: an arm of the comparison on the jobs of one repetition, on a real Slurm, from empty to empty."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from examples.site.core_clock import CoreClock, CoreGroups
from examples.site.slurm_cluster import ADVISOR, BUSY, ROOT, SlurmCluster
from examples.site.stream import StreamJob
from interfere.progress import Mark, read

WORKSPACE = "work"  # of the server, in the folder of a run
DEVICE_TYPE = "site-core"  # no model has seen it, nor the names of the workloads
PREFIX = "site-"
WINDOW_S = 12.0  # deferral; a site has 20 s, and jobs of hours
PLACE_S = 10.0  # a placed job that has not started by then is decided again; a site has 60 s
PREPARE_S = 2.0  # before the end of a job the next one in its place is chosen; a site has 5 s
CHECKPOINT_S = 2.0  # a requeue took 1.5 s; the start-up comes on top
MARK_EVERY_S = 0.2  # a site has 1 s
POLL_S = 1.0
ENDLESS_STEPS = 10_000_000
# EASY: one reservation. Slurm counts time limits and reservations in whole minutes; no job is killed by its limit.
SCHEDULER = "bf_interval=1,bf_resolution=1,bf_job_part_count_reserve=1,sched_interval=1,sched_min_interval=0"
OPTIONS = ("OverTimeLimit=UNLIMITED", "MpiDefault=none")


class Arm(StrEnum):
    """Who decides which jobs share a device."""

    SLURM = "slurm"  # nobody shares: exclusive GPUs, EASY backfill
    SHARING = "sharing"  # Slurm, on the least loaded node that has a free shard
    GREEDY = "greedy"  # the adapter, each job where the server predicts the least cost
    OURS = "ours"  # the adapter as it ships
    MOVES = "moves"  # the same, and running jobs are stopped and started on the other device where that pays

    @property
    def is_advised(self) -> bool:
        """Whether a policy server and the adapter run."""
        return self not in (Arm.SLURM, Arm.SHARING)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadCost:
    """What a workload takes alone, in seconds of a core that nobody else uses."""

    start_up_s: float
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What every run needs beside its arm and its jobs."""

    folder: Path
    cores: tuple[int, ...]
    costs: dict[str, WorkloadCost]
    weight: int = 1  # against other programs
    workspace: Path | None = None  # of the server, with what it learned from earlier streams; None: it knows nothing
    patience_s: float = 1800.0  # wall, for all jobs to end


def run_arm(arm: Arm, jobs: Sequence[StreamJob], settings: RunSettings) -> dict[str, Any]:
    """Run the jobs under one arm, and return the document of the run.

    Raises AssertionError where Slurm or a job does not do what it should.
    """
    folder = settings.folder
    cluster = SlurmCluster(
        folder=folder / "slurm",
        gpus=1,
        defers=arm.is_advised,
        window_s=WINDOW_S,
        scheduler=SCHEDULER,
        options=OPTIONS,
        partition_options="LLN=YES",
    )
    cluster.stop()  # what is left of a run that was killed
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "results").mkdir(parents=True)
    with ExitStack() as running:
        # 1. The cluster, and for an arm that is advised the server and the adapter.
        groups = running.enter_context(CoreGroups(settings.cores, settings.weight))
        clock = running.enter_context(CoreClock(groups))
        running.callback(cluster.stop)
        cluster.start()
        if arm.is_advised:
            if settings.workspace is not None:
                shutil.copytree(settings.workspace, folder / WORKSPACE)
            address = running.enter_context(_policy_server(folder, cluster.env))
            advisor = cluster.advise(_adapter_settings(cluster, address, arm), program=_adapter_of(arm))
            cluster.next_round()
        # 2. The jobs, each when the clock of the site says so.
        begin_s, before = clock.now_s(), clock.read()
        submitted: list[tuple[str, float]] = []
        for job in jobs:
            while (wait_s := begin_s + job.arrival_s - clock.now_s()) > 0:
                time.sleep(min(wait_s, POLL_S))
            submitted.append((_submit(cluster, groups, arm, job, settings), time.time()))
        # 3. The end of all of them.
        ids = [job_id for job_id, _ in submitted]
        _wait_ended(cluster, ids, settings.patience_s)
        if arm.is_advised:
            assert advisor.poll() is None, (cluster.folder / "advisor.err").read_text()[-2000:]
        used = clock.read() - before
        return {
            "arm": arm.value,
            "cores": len(settings.cores),
            "job_s": float(used.jobs_s.sum()),
            "control_s": float(used.control_s.sum()),
            "others_s": float(used.others_s.sum()),
            "taken_s": float(sum(clock.taken_s(submitted[0][1], time.time()))),
            "wall_s": time.time() - submitted[0][1],
            "jobs": [
                _job_document(job, job_id, at_s, folder / "results", settings.costs, clock)
                for job, (job_id, at_s) in zip(jobs, submitted, strict=True)
            ],
            "meetings": _meetings(cluster, folder / "results", settings.costs, clock),
            "predictions": _predictions(cluster) if arm.is_advised else {},
            "rounds": len(cluster.rounds()) if arm.is_advised else 0,
        }


def measured_costs(
    workloads: Sequence[str], cores: Sequence[int], folder: Path, seconds: float
) -> dict[str, WorkloadCost]:
    """Measure what each workload takes alone on the first core, while another job keeps the second one busy, as it is
    in a run: processor time and pauses, which no other process can stretch."""
    costs, folder = {}, folder / "alone"
    folder.mkdir(parents=True, exist_ok=True)
    with _job_on(cores[1], workloads[0], ENDLESS_STEPS, folder / "beside", discard=True) as beside:
        try:
            for workload in workloads:
                costs[workload] = _measured_cost(workload, cores[0], folder, seconds)
        finally:
            beside.kill()
    return costs


def _measured_cost(workload: str, core: int, folder: Path, seconds: float) -> WorkloadCost:
    """Run a workload for half the seconds or more, and return what it took."""
    steps = 5
    while True:
        with _job_on(core, workload, steps, folder) as job:
            _, errors = job.communicate()
        assert job.returncode == 0, errors.decode(errors="replace")[-2000:]
        row = json.loads((folder / "run.0.0.0.json").read_text())
        measured_s = row["cpu_s"] + row["pause_s"]
        if measured_s >= seconds / 2:
            return WorkloadCost(start_up_s=row["start_up_cpu_s"], step_s=measured_s / steps)
        steps = max(2 * steps, int(steps * seconds / max(measured_s, 1e-3)))


def _job_on(core: int, workload: str, steps: int, folder: Path, *, discard: bool = False) -> "subprocess.Popen[bytes]":
    """Start a job on one core. `discard`: what it prints."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "examples.site.job", workload, str(steps), str(folder)]
    output = subprocess.DEVNULL if discard else subprocess.PIPE
    one_core = ["taskset", "--cpu-list", str(core), *command]
    return subprocess.Popen(one_core, cwd=ROOT, env=_job_environment(), stdout=output, stderr=output)


# --- what runs --------------------------------------------------------------------------------------------------------


@contextmanager
def _policy_server(folder: Path, env: dict[str, str]) -> Iterator[str]:
    """Run a policy server whose model has seen neither the device type nor the workloads. Yields its address."""
    command = ["interfere", "serve", "--insecure", "--port", "0", "--metrics-port", "-1", "--json"]
    command += ["--work", str(folder / WORKSPACE)]
    with (
        (folder / "server.log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-m", *command], env=env, stdout=subprocess.PIPE, stderr=log, text=True
        ) as server,
    ):
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            assert line, (folder / "server.log").read_text()[-2000:]
            yield str(json.loads(line)["address"])
        finally:
            server.terminate()
            try:
                server.wait(30.0)
            except subprocess.TimeoutExpired:
                server.kill()


def _adapter_settings(cluster: SlurmCluster, address: str, arm: Arm) -> Path:
    """Return the settings file of the adapter."""
    values = {"server": address, "journal": str(cluster.folder / "journal.jsonl"), **adapter_values(arm)}
    devices = values.pop("devices")
    return cluster.write_settings(values, *(f'type = "{each["type"]}"' for each in devices))


def adapter_values(arm: Arm) -> dict[str, Any]:
    """Return the adapter's settings, whose times are compressed as the jobs are."""
    return {
        "cluster": "site",
        "interval_s": POLL_S,
        "window_s": WINDOW_S,
        "timeout_s": 30.0,
        "least_window_s": 1.0,
        "report_every_s": 4.0,  # a site has 60 s
        "start_s": PLACE_S,
        "prepare_s": PREPARE_S,
        "moves": arm is Arm.MOVES,
        # A place is never left empty for a pair that nobody has tried.
        "probe_devices": 2,
        "probe_cap": 3.0,
        "probe_risk": 0.5,
        "allow_extrapolation": True,  # no pair of this site is like what the model learned from
        "devices": [{"type": DEVICE_TYPE}],
    }


def _adapter_of(arm: Arm) -> tuple[str, ...]:
    return ("examples.site.greedy",) if arm is Arm.GREEDY else ADVISOR


def _job_environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def _submit(cluster: SlurmCluster, groups: CoreGroups, arm: Arm, job: StreamJob, settings: RunSettings) -> str:
    """Submit a job and return its id. A gang takes whole GPUs under every arm: the adapter leaves gangs to Slurm."""
    shares = arm is not Arm.SLURM and job.gpus == 1
    steps = steps_of(job, settings.costs)
    program = f"{sys.executable} -m examples.site.job {job.workload} {steps} {settings.folder / 'results'}"
    # In the command, because `--export` makes slurmd ask for the user's environment, which takes it up to a second.
    exports = f"OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 INTERFERE_PROGRESS_EVERY_S={MARK_EVERY_S}"
    inside = f"{groups.join_command}; export {exports}; exec {program}"
    command = f"srun sh -c '{inside}'" if job.gpus > 1 else inside
    comment = comment_of(job) if shares else f"interfere:workload={PREFIX}{job.workload}"
    if shares and arm is Arm.MOVES:
        comment += f";checkpoint_s={CHECKPOINT_S + settings.costs[job.workload].start_up_s:.1f}"
    return cluster.sbatch(
        command,
        f"--gres={'shard' if shares else 'gpu'}:1",
        f"--nodes={job.gpus}",
        "--ntasks-per-node=1",
        "--requeue",
        f"--time={max(1, int(np.ceil(job.alone_s / 60.0)))}",
        f"--comment={comment}",
    )


def comment_of(job: StreamJob) -> str:
    """Return what a job on one device says of itself. Slurm gets its run time too, as a time limit."""
    return f"interfere:workload={PREFIX}{job.workload};remaining_s={job.alone_s:.1f}"


def steps_of(job: StreamJob, costs: Mapping[str, WorkloadCost]) -> int:
    """Return the steps with which the job takes `alone_s` alone, start-up included."""
    cost = costs[job.workload]
    return max(1, round((job.alone_s - cost.start_up_s) / cost.step_s))


def _wait_ended(cluster: SlurmCluster, ids: Sequence[str], within_s: float) -> None:
    """Wait until no job is left. Slurm forgets jobs some minutes after their end."""
    end_s = time.monotonic() + within_s
    while any(row["job_state"] in BUSY for job_id, row in cluster.jobs().items() if job_id in ids):
        assert time.monotonic() < end_s, f"not within {within_s:g} s:\n{cluster.describe()}"
        time.sleep(POLL_S)


# --- what happened ----------------------------------------------------------------------------------------------------


def _job_document(
    job: StreamJob,
    job_id: str,
    submitted_s: float,
    results: Path,
    costs: dict[str, WorkloadCost],
    clock: CoreClock,
) -> dict[str, Any]:
    """Return what happened to one job. `completion_s`: from its submission to its end, on the clock of the site."""
    runs = [json.loads(path.read_text()) for path in sorted(results.glob(f"run.{job_id}.*.json"))]
    output = results.parent / "slurm" / f"out.{job_id}"
    assert any(run["complete"] for run in runs), f"job {job_id} did not end well: {output.read_text()[-2000:]}"
    end_s = max(run["end_s"] for run in runs)
    times = clock.site_s(np.array([submitted_s, min(run["begin_s"] for run in runs), end_s]))
    return {
        **asdict(job),
        "id": job_id,
        "nodes": sorted({run["node"] for run in runs}),
        "restarts": max(run["restart"] for run in runs),
        "completion_s": float(times[2] - times[0]),
        "wait_s": float(times[1] - times[0]),
        "wall_completion_s": end_s - submitted_s,
        "nominal_s": costs[job.workload].start_up_s + steps_of(job, costs) * costs[job.workload].step_s,
        "end_unix_s": end_s,
    }


def _meetings(
    cluster: SlurmCluster, results: Path, costs: dict[str, WorkloadCost], clock: CoreClock
) -> list[dict[str, Any]]:
    """Return for each ordered pair of jobs that stepped on one device at once how much the first was slowed down, on
    the clock of the device, by the marks of both."""
    runs = [json.loads(path.read_text()) for path in sorted(results.glob("run.*.0.*.json"))]
    marks = {run["job"]: read(cluster.spool / f"{run['job']}.jsonl").marks for run in runs}
    found = []
    for run in runs:
        for other in runs:
            if run["job"] == other["job"] or run["node"] != other["node"]:
                continue
            begin_s = max(run["loaded_s"], other["loaded_s"])
            end_s = min(run["end_s"], other["end_s"])
            within = [mark for mark in marks[run["job"]] if begin_s <= mark.unix_s <= end_s]
            slowdown = _slowdown(within, costs[run["workload"]].step_s, clock, int(run["node"][1:]))
            if slowdown is not None:
                found.append(
                    {
                        "job": run["job"],
                        "beside": other["job"],
                        "workload": run["workload"],
                        "neighbour": other["workload"],
                        **slowdown,
                    }
                )
    return found


def _slowdown(marks: Sequence[Mark], step_s: float, clock: CoreClock, device: int) -> dict[str, float] | None:
    """Return the mean step time between the first and the last mark, over that alone; None for less than a second."""
    if len(marks) < 2 or marks[-1].writer != marks[0].writer:
        return None
    first_s, last_s = clock.device_s(np.array([marks[0].unix_s, marks[-1].unix_s]), device)
    steps = marks[-1].steps - marks[0].steps
    if last_s - first_s < 1.0 or steps <= 0:
        return None
    return {"slowdown": float((last_s - first_s) / steps / step_s), "seconds": float(last_s - first_s)}


def _predictions(cluster: SlurmCluster) -> dict[str, dict[str, Any]]:
    """Return the last decision to start each job beside another one: the partner and the predicted slowdown."""
    return {
        each["job"]: {"partner": each["partner"], "slowdown": each["slowdown"]}
        for done in cluster.rounds()
        for each in done["decisions"]
        if each["decision"] == "start_shared"
    }
