"""Latency targets that plans keep for pairs that no model has seen: judged by the predicted p99, and by the mean.

A third of the pairs of a service and a job without requests is held out of the table `core`: a service and a job whose
rows are held out at one rate of arrivals are held out at every rate. The training pipeline learns the rest, and a real
server decides held-out pairs. A target is a multiple of the p99 alone. Two planners differ in one field of a job:

* `p99`: `latency_target_s`, which the server judges by the p99 that it predicts;
* `mean`: `max_slowdown`, the same multiple as a cap on the slowdown of a step, as a planner without p99s would do.

Then the held-out pairs run on one core: requests arrive in an open loop, alone and beside the job. A target is broken
where the p99 beside the job exceeds it. With `--recorded` the two campaigns of the table say what happened instead.

`python -m tests.bench.latency_targets [--recorded] [--minutes 15] [--folds 0,1,2]` prints, by target, how many pairs
share and how many of these break the target: where a server is asked pair by pair, and for random queues of eight
services beside eight running jobs. For equal numbers of pairs, all are ranked by the predicted median of a metric: as
many of the least as the p99 shares pair by pair, and the first quarter and half.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.data.loading import load_table
from interfere.data.tables import Table, write_table
from interfere.profiling import affinity
from interfere.profiling.campaign_table import MAX_TAKEN
from interfere.profiling.slices import EDGE_S, side_slices
from interfere.profiling.workload_profiler import WorkerPool
from interfere.profiling.workloads import find_workload
from interfere.records import ActionKind, Device, Job, Limits, Snapshot
from interfere.records.measurements import GANG_SUFFIX
from interfere.serving.server import start_server
from interfere.sharing_modes import SharingMode
from interfere.training.models.catalogue import select_models
from interfere.training.pipeline import train
from tests.bench.history import record

Pair = tuple[str, str]  # a service, and the job that it may share a device with
Case = tuple[float, str, str]  # the target, what is asked, and by what it is judged

FOLDS = 3
TARGETS = (1.2, 1.5, 2.0, 3.0)  # times the p99 alone
RISK = 0.05
QUEUES, QUEUE_LENGTH = 20, 8  # random queues by target; services, and devices with a running job, in each
METRICS = ("step_time_mean", "latency_p50", "latency_p99")
SHARES = (0.25, 0.5)  # of the pairs, of the least predicted slowdown
MODELS = "additive,gbdt"
REQUESTS = 2_000  # beside a job by pair at least, and alone by service where all pairs of the service run
ALONE_REQUESTS = 500  # alone by service at least
MAX_TRIES = 8  # to have as many, where slices are disturbed
SLICE_S = 0.5  # without a stop; slices of .12 s, as the table has, hide queues that grow


def held_out_pairs(table: Table, fold: int) -> list[Pair]:
    """Return the pairs of one fold that were measured."""
    measured = sorted(
        {
            (row.victim, row.neighbour)
            for row in table.pairs
            if row.metric == "latency_p99" and "@" not in row.neighbour and not row.neighbour.endswith(GANG_SUFFIX)
        }
    )
    of_any_rate = sorted({(_service(victim), neighbour) for victim, neighbour in measured})
    order = np.random.default_rng(0).permutation(len(of_any_rate)).tolist()
    chosen = {of_any_rate[k] for k in order[fold::FOLDS]}
    return [(victim, neighbour) for victim, neighbour in measured if (_service(victim), neighbour) in chosen]


def _service(workload: str) -> str:
    return workload.partition("@")[0]


def trained_folder(table: Table, pairs: Iterable[Pair], work: Path, report: Callable[[str], None]) -> Path:
    """Return a model that the training pipeline publishes from a table without the rows of these pairs."""
    folder = work / "model"
    if not folder.exists():
        unseen = set(map(frozenset, pairs))
        rows = tuple(row for row in table.pairs if frozenset((row.victim, row.neighbour)) not in unseen)
        (work / "rest").mkdir(parents=True, exist_ok=True)
        write_table(work / "rest", replace(table, name="rest", pairs=rows))
        models = {model.name: model for model in select_models(MODELS)}
        train([work / "rest"], work / "workspace", publish_to=folder, models=models, report=report)
    return folder


# --- what happens -----------------------------------------------------------------------------------------------------


def recorded(table: Table, pairs: Iterable[Pair]) -> dict[Pair, float]:
    """Return the p99 of each pair in times of that alone, as the table has it: the geometric mean of both campaigns."""
    logs = defaultdict[Pair, list[float]](list)
    for row in table.ok_pairs:
        if row.metric == "latency_p99":
            logs[row.victim, row.neighbour].append(math.log(row.slowdown))
    return {pair: math.exp(np.mean(logs[pair])) for pair in pairs if pair in logs}


def run_on_core(pairs: Sequence[Pair], work: Path, report: Callable[[str], None], limit_s: float) -> dict[Pair, float]:
    """Run each pair on one core, and return its p99 in times of that alone. Pairs in `work` are not run again.

    Pairs run in random order; after `limit_s` no further one does. A pair with too few requests, alone or beside the
    job, is left out.
    """
    log = work / "latencies.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    done = {(line["service"], line["neighbour"]): line for line in map(json.loads, lines)}
    missing, begin_s = [pair for pair in pairs if pair not in done], time.monotonic()
    if missing and limit_s:
        names = sorted({name for pair in missing for name in pair})
        layout = affinity.choose_layout(SharingMode.TIMESLICE, None)
        with WorkerPool(names, groups=missing, layout=layout, log=work / "workers.log") as pool, log.open("a") as file:
            for k in np.random.default_rng(0).permutation(len(missing)).tolist():
                if time.monotonic() - begin_s > limit_s:
                    break
                service, neighbour = missing[k]
                copies = sum(service == other for other, _ in missing)
                alone, beside = _latencies(pool, missing[k], copies)
                done[missing[k]] = {"service": service, "neighbour": neighbour, "alone": alone, "beside": beside}
                file.write(json.dumps(done[missing[k]]) + "\n")
                report(f"{service} beside {neighbour}: {len(beside)} requests, {len(alone)} alone")
    alone_of = defaultdict[str, list[float]](list)
    for pair in done:
        alone_of[pair[0]] += done[pair]["alone"]
    told = [
        (service, neighbour)
        for (service, neighbour), line in done.items()
        if len(line["beside"]) >= REQUESTS and len(alone_of[service]) >= ALONE_REQUESTS
    ]
    report(f"of {len(pairs)} pairs {len(done)} ran, {len(done) - len(told)} of them disturbed too often to tell a p99")
    report(f"requests alone by service: {min(len(alone_of[service]) for service, _ in told)} at least")
    return {pair: _p99(done[pair]["beside"]) / _p99(alone_of[pair[0]]) for pair in told}


def _latencies(pool: WorkerPool, pair: Pair, copies: int) -> tuple[list[float], list[float]]:
    """Return the latencies of a service alone and beside a job, of slices that third processes hardly disturbed.

    `copies` pairs of the same service share the requests alone.
    """
    a_slice = (SLICE_S - EDGE_S) * find_workload(pair[0]).requests_per_s
    found: dict[bool, list[float]] = {True: [], False: []}
    wanted = {True: REQUESTS / copies, False: float(REQUESTS)}
    for _ in range(MAX_TRIES):  # disturbed slices are measured again
        slices = {alone: max(0, math.ceil((wanted[alone] - len(found[alone])) / a_slice)) for alone in found}
        rounds = [[frozenset({0})] * slices[True] + [frozenset({0, 1})] * slices[False]]
        if not rounds[0]:
            break
        run = pool.run_slices(pair, rounds, SLICE_S, math.inf)
        for each in side_slices(0, run.recordings, run.slices):
            if each.taken_s <= MAX_TAKEN * each.wall_s:
                found[each.alone] += each.latencies_s
    return found[True], found[False]


def _p99(latencies_s: Sequence[float]) -> float:
    return float(np.quantile(latencies_s, 0.99))


# --- what is decided --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Planner:
    """A real server, asked which of the held-out pairs may share a device, by p99 or by the mean."""

    client: PolicyClient
    p99_alone_s: Mapping[str, float]
    partners: Mapping[str, tuple[str, ...]]  # of each service, held out
    by_p99: bool

    def shared(self, services: Iterable[str], running: Sequence[str], target: float) -> list[Pair]:
        """Return the pairs that a plan starts, of some services that wait and devices with one running job each."""
        devices = [
            Device(id=name, type="cpu-core", pool=name, residents=(Job(id=f"on-{name}", workload=name),))
            for name in running
        ]
        pending = [self._job(service, running, target) for service in services]
        limits = Limits.of(risk=RISK, min_joint_throughput=0.0)
        plan = self.client.match(
            Snapshot(pending=tuple(job for job in pending if job.pools), devices=tuple(devices), limits=limits)
        )
        return [(each.job_id, each.device_id) for each in plan.actions if each.kind is ActionKind.START_SHARED]

    def _job(self, service: str, running: Sequence[str], target: float) -> Job:
        pools = tuple(name for name in running if name in self.partners[service])
        job = Job(id=service, workload=service, pools=pools)
        if self.by_p99:
            return replace(job, latency_target_s=target * self.p99_alone_s[service])
        return replace(job, max_slowdown=target)


def random_queues(pairs: Sequence[Pair]) -> list[tuple[list[str], list[str]]]:
    """Return the services and the running jobs of each queue."""
    rng = np.random.default_rng(1)
    services, jobs = (sorted({pair[side] for pair in pairs}) for side in (0, 1))
    return [
        (rng.choice(services, QUEUE_LENGTH, False).tolist(), rng.choice(jobs, QUEUE_LENGTH, False).tolist())
        for _ in range(QUEUES)
    ]


def by_predicted_median(client: PolicyClient, pairs: Sequence[Pair], metric: str) -> list[Pair]:
    """Return the pairs, the one whose service is predicted to be slowed down least first."""
    names = sorted({name for pair in pairs for name in pair})
    asked = [(names.index(service), names.index(neighbour)) for service, neighbour in pairs]
    medians = client.predict(names, pairs=asked, metric=metric).prediction.median
    return [pairs[k] for k in np.argsort(medians, kind="stable")]


def shared_pairs(table: Table, folder: Path, pairs: Sequence[Pair], work: Path) -> dict[Case, list[Pair]]:
    """Return the pairs that share a device in each case."""
    p99_alone_s = {job.workload: job.latency_p99_s for job in table.jobs}
    partners = {
        service: tuple(other for first, other in pairs if first == service) for service in {pair[0] for pair in pairs}
    }
    found: dict[Case, list[Pair]] = {}
    settings = Settings(model=folder, work=work / "served", port=0, decision_workers=0)
    with ExitStack() as stack:
        server = start_server(settings)
        stack.callback(server.stop)
        client = stack.enter_context(PolicyClient(server.address, timeout_s=600.0))
        ranked = {metric: by_predicted_median(client, pairs, metric) for metric in METRICS}
        for target in TARGETS:
            for by_p99, name in ((True, "p99"), (False, "mean")):
                planner = Planner(client=client, p99_alone_s=p99_alone_s, partners=partners, by_p99=by_p99)
                pair_by_pair = [pair for pair in pairs if planner.shared(pair[:1], pair[1:], target)]
                found[target, "pair by pair", name] = pair_by_pair
                plans = [planner.shared(services, jobs, target) for services, jobs in random_queues(pairs)]
                found[target, "queues", name] = [pair for plan in plans for pair in plan]
            for metric, order in ranked.items():
                found[target, "as many", metric] = order[: len(found[target, "pair by pair", "p99"])]
                for share in SHARES:
                    found[target, f"first {share:.0%}", metric] = order[: round(share * len(order))]
    return found


def main(arguments: Sequence[str]) -> None:
    """Train, run, decide, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, help="keeps the models and the runs; a temporary folder otherwise")
    parser.add_argument("--recorded", action="store_true", help="let the table say what happened; nothing is run")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no further pair of a fold runs after that")
    parser.add_argument("--folds", default="0", help="which thirds of the pairs are held out, one after the other")
    options = parser.parse_args(arguments)
    counts = defaultdict[Case, list[int]](lambda: [0, 0])
    kept = dict.fromkeys(TARGETS, 0)
    table, total = load_table("core"), 0
    with ExitStack() as stack:
        folder = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for fold in map(int, options.folds.split(",")):
            work = folder / f"fold-{fold}"
            work.mkdir(parents=True, exist_ok=True)
            pairs = held_out_pairs(table, fold)
            print(f"fold {fold}: {len(pairs)} pairs held out", flush=True)
            model = trained_folder(table, pairs, work, print)
            ratio = (
                recorded(table, pairs) if options.recorded else run_on_core(pairs, work, print, 60 * options.minutes)
            )
            total += len(ratio)
            for target in TARGETS:
                kept[target] += sum(each <= target for each in ratio.values())
            for case, shared in shared_pairs(table, model, sorted(ratio), work).items():
                counts[case][0] += len(shared)
                counts[case][1] += sum(ratio[pair] > case[0] for pair in shared)
    figures = {"pairs": float(total)}
    for target in TARGETS:
        print(f"{target} x the p99 alone, which {kept[target]} of {total} pairs keep")
        for (of_target, question, judge), (sharing, broken) in sorted(counts.items()):
            if of_target == target:
                print(f"  {question:14} {judge:15} shares {sharing:4}, breaks {broken:4}")
                name = f"{target} {question} {judge}"
                figures |= {f"{name} shared": float(sharing), f"{name} broken": float(broken)}
    record("latency targets" + (", recorded" if options.recorded else ""), figures)


if __name__ == "__main__":
    main(sys.argv[1:])
