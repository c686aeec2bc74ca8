"""Processor time of decisions for 12,500 devices with 20,000 residents, of which 100 things change a round.

Of 100 pending jobs 67 are gangs that wait for 64 free devices, and 33 have just arrived and start; 34 residents end.
The shipped GPU model decides, on a server of its own process. Three clusters: `none` sends no times, `elapsed` the time
since submission of every job, as the adapters do, and `remaining` all times of every job, which change in every round.

`python -m tests.bench.large_rounds [none|elapsed|remaining ...] [--rounds N] [--whole]` prints a line for each cluster;
with `--whole` the client sends the whole snapshot in every round. `--profile` decides in this process, and prints where
the time goes.
"""

import argparse
import cProfile
import math
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from interfere.client import PolicyClient
from interfere.config import SHIPPED_GPU_MODEL
from interfere.records import Device, EndPromise, Job, Plan, ScopeLedger, Snapshot
from interfere.serving.metrics import Metrics
from interfere.serving.service import PolicyCore
from interfere.serving.servicer import PolicyServicer
from interfere.serving.state import load_served_model
from interfere.store.store import Store, open_store, store_address
from interfere.v1 import policy_pb2 as pb
from interfere.wire.converter import from_proto
from interfere.wire.snapshots import SentSnapshots
from tests.bench.processor_time import tree_cpu_s
from tests.waiting import free_port

DEVICES, PAIRED, WAITING, ARRIVALS, ENDS = 12_500, 7_500, 67, 33, 34
ROUND_S = 60.0
TYPES = ("v100", "p100", "k80")
CASES = ("none", "elapsed", "remaining")


class Cluster:
    """A cluster from round to round."""

    def __init__(self, case: str, workloads: tuple[str, ...]) -> None:
        self._case, self._workloads, self._rng = case, workloads, np.random.default_rng(0)
        self._now_s, self._jobs = 1e6, 0
        self._submitted_s: dict[str, float] = {}
        self._length_s: dict[str, float] = {}
        self._workload: dict[str, str] = {}
        self._since_s: dict[str, float] = {}
        self._on = [[self._new(started=True) for _ in range(2 if k < PAIRED else 1)] for k in range(DEVICES)]
        self._waiting = [self._new() for _ in range(WAITING)]
        self._arrived = [self._new() for _ in range(ARRIVALS)]

    def _new(self, *, started: bool = False) -> str:
        name = f"j{self._jobs}"
        self._jobs += 1
        self._submitted_s[name] = self._now_s - (float(self._rng.uniform(10.0, 80_000.0)) if started else 1.0)
        if started:
            self._since_s[name] = self._submitted_s[name] + 5.0
        self._length_s[name] = float(self._rng.lognormal(math.log(40_000.0), 1.0)) + 100_000.0 * started
        self._workload[name] = str(self._rng.choice(self._workloads))
        return name

    def _job(self, name: str, gpus: int = 1) -> Job:
        times = {}
        elapsed_s = self._now_s - self._submitted_s[name]
        if self._case != "none":
            times["elapsed_s"] = elapsed_s
        since_s = self._since_s.get(name, math.nan)
        if self._case == "remaining":
            times["attained_s"] = 0.0 if math.isnan(since_s) else self._now_s - since_s
            times["remaining_s"] = max(1.0, self._length_s[name] - times["attained_s"])
        if not math.isnan(since_s):
            times["since_s"] = since_s
        return Job(id=name, workload=self._workload[name], gpus=gpus, **times)

    def snapshot(self) -> Snapshot:
        """Return the present state."""
        return Snapshot(
            pending=(*(self._job(name, 64) for name in self._waiting), *map(self._job, self._arrived)),
            devices=tuple(
                Device(id=f"d{k}", type=TYPES[k % 3], node=f"n{k // 8}", residents=tuple(map(self._job, names)))
                for k, names in enumerate(self._on)
            ),
            now_s=self._now_s,
        )

    def promise_ends(self, store: Store) -> None:
        """Let the ledger hold a promised end of every resident, as it does where all of them have once waited."""
        names = [name for names in self._on for name in names]
        promises = tuple(EndPromise(job_id=name, latest_end_s=self._now_s + 1e6) for name in names)
        assert store.ledgers.commit(ScopeLedger(scope="default", now_s=self._now_s, end_promises=promises))

    def advance(self, plan: Plan) -> None:
        """Start what the plan starts, end some residents, and let jobs arrive."""
        self._now_s += ROUND_S
        for action in plan.actions:
            if action.places and action.job_id in self._arrived:
                self._arrived.remove(action.job_id)
                self._on[int(action.device_id[1:])].append(action.job_id)
                self._since_s[action.job_id] = self._now_s - ROUND_S + 1.0
        busy = [k for k, names in enumerate(self._on) if names]
        for k in self._rng.choice(busy, ENDS, replace=False).tolist():
            self._on[k].pop(0)
        self._arrived += [self._new() for _ in range(ARRIVALS)]


@contextmanager
def served(work: Path, cluster: Cluster) -> Iterator[tuple[int, str]]:
    """Run a server with the shipped GPU model. Yields its process and address."""
    store = open_store(store_address(str(work / "store.db")))
    cluster.promise_ends(store)
    store.close()
    port = free_port()
    command = [sys.executable, "-m", "interfere", "serve", "--model", str(SHIPPED_GPU_MODEL)]
    command += ["--work", str(work), "--port", str(port)]
    with (work / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        yield process.pid, f"127.0.0.1:{port}"
        process.terminate()


def measured(case: str, rounds: int, *, whole: bool) -> None:
    """Print processor seconds of server and client in a median round, after the first."""
    cluster = Cluster(case, load_served_model(SHIPPED_GPU_MODEL).manifest.workloads)
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder), cluster) as (pid, address),
        PolicyClient(address, timeout_s=120.0) as client,
    ):
        client.wait_ready(60.0)
        server_s, client_s, wall_s = [], [], []
        for k in range(rounds + 1):
            snapshot = cluster.snapshot()
            if whole:
                client._sent._kept.clear()  # as a client that knows no deltas
            cpu_s, own_s, start_s = tree_cpu_s(pid), time.process_time(), time.perf_counter()
            plan = client.match(snapshot)
            if k:
                wall_s.append(time.perf_counter() - start_s)
                client_s.append(time.process_time() - own_s)
                time.sleep(0.2)  # what the server does after its answer counts too
                server_s.append(tree_cpu_s(pid) - cpu_s)
            cluster.advance(plan)
    figures = {"server": np.median(server_s), "most": max(server_s), "client": np.median(client_s)}
    cpu = ", ".join(f"{name} {value:.3f}" for name, value in figures.items())
    how, started = "whole" if whole else "delta", sum(bool(action.places) for action in plan.actions)
    print(
        f"{case:10} {how}: CPU s {cpu}; wall {np.median(wall_s):.3f} s, {plan.status.value}, {started} started",
        flush=True,
    )


def profiled(case: str, rounds: int) -> None:
    """Print where the decisions of a worker spend their time, from the bytes of a request to those of its answer."""
    model = load_served_model(SHIPPED_GPU_MODEL)
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(store_address(str(Path(folder) / "store.db")))
        core = PolicyCore(model=model, store=store, metrics=Metrics(), time_budget_s=1.0)
        servicer, profile, sent = PolicyServicer(core), cProfile.Profile(time.process_time), SentSnapshots()
        cluster = Cluster(case, model.manifest.workloads)
        cluster.promise_ends(store)
        for k in range(rounds + 1):
            snapshot = cluster.snapshot()
            request = sent.request(snapshot).SerializeToString()
            if k:
                profile.enable()
            answer = pb.MatchResponse.FromString(
                servicer.Match(pb.MatchRequest.FromString(request), None).SerializeToString()
            )
            profile.disable()
            sent.keep(snapshot, answer.base_id)
            cluster.advance(from_proto(Plan, answer))
        pstats.Stats(profile).sort_stats("cumulative").print_stats(70)
        store.close()


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    for case in given.cases:
        if given.profile:
            profiled(case, given.rounds)
        else:
            measured(case, given.rounds, whole=given.whole)


if __name__ == "__main__":
    main()
