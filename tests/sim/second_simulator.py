"""A second simulator, written from these rules alone and sharing no code with the first, which it must agree with.

Devices are of one type, on nodes. A job takes its devices on the node with the fewest free ones that holds it whole,
the first of equal nodes; where none does, whole nodes with the most free devices first, then the node with the fewest
that holds the rest, and never more nodes than it would on an empty cluster: else it waits. Jobs of one key are ordered
by submission, then by id. Decisions are made at arrivals, ends and, under Tiresias, when a job's service passes the
threshold; all events of one moment come first, ends before arrivals.

Orders: `fifo`; `sjf` by duration; `edf` by deadline; `srtf` by what is left; `tiresias` by two queues, jobs that have
had `THRESHOLD_S` device seconds in the second. The last two preempt: in order, a waiting job takes free devices, else
stops running jobs that come later in the order, the last first, until it fits; of these only those whose devices it
needs once it has taken the free ones of its nodes. A stop adds `checkpoint_s` of work. The others never stop a job.
Backfill:
`none`: the queue stops at the first job that does not fit. `first-fit`: every later job that fits starts.
`easy`: the first job that does not fit gets a reservation: its shadow time is the first end of a running job at which
it would fit if nothing else started, and its nodes then are kept for it. Estimates of run times are the true ones. A
later job starts if it ends by the shadow time, or on devices that are not reserved. On each node the reservation counts
on devices that come free until then first, and on devices that are free now only for the rest; a job that ends by the
shadow time takes such reserved devices of its node first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

THRESHOLD_S = 18_000.0
TOLERANCE_S = 1e-6
Nodes = dict[int, int]  # node -> number of devices


@dataclass(eq=False)
class Submission:
    """A job, and how far it has come."""

    id: str
    arrival_s: float
    gpus: int
    duration_s: float
    deadline_s: float = math.inf
    checkpoint_s: float = 0.0
    left_s: float = field(default=math.nan)  # when last stopped or started
    attained_s: float = 0.0
    since_s: float = math.nan  # start of the present run
    nodes: Nodes = field(default_factory=dict)  # empty: waits
    end_s: float = math.nan

    def ran_s(self, now_s: float) -> float:
        return now_s - self.since_s if self.nodes else 0.0


def fit(free: Sequence[int], gpus: int, node_gpus: int) -> Nodes:
    """Devices of each node that a job takes; empty where it does not fit."""
    left = {node: count for node, count in enumerate(free) if count}
    taken: Nodes = {}
    while (missing := gpus - sum(taken.values())) and left:
        whole = [node for node in left if left[node] >= missing]
        node = min(whole, key=lambda n: (left[n], n)) if whole else max(left, key=lambda n: (left[n], -n))
        taken[node] = min(left.pop(node), missing)
    return taken if not missing and len(taken) <= math.ceil(gpus / node_gpus) else {}


class SecondSimulator:
    """One replay."""

    def __init__(self, jobs: Sequence[Submission], node_gpus: Sequence[int], order: str, backfill: str) -> None:
        self.jobs = sorted(jobs, key=lambda job: (job.arrival_s, job.id))
        self.rank = {job.id: k for k, job in enumerate(self.jobs)}
        self.free, self.node_gpus = list(node_gpus), max(node_gpus)
        self.order, self.backfill, self.now_s = order, backfill, 0.0
        self.waiting: list[Submission] = []
        self.running: list[Submission] = []
        for job in self.jobs:
            job.left_s = job.duration_s

    def run(self) -> dict[str, float]:
        """Job id -> its end."""
        arriving = list(reversed(self.jobs))
        while arriving or self.waiting or self.running:
            moments = [job.since_s + job.left_s for job in self.running]
            moments += [arriving[-1].arrival_s] if arriving else []
            if self.order == "tiresias":
                moments += [
                    job.since_s + (THRESHOLD_S / job.gpus - job.attained_s)
                    for job in self.running
                    if self._key(job) < (1.0, 0)
                ]
            self.now_s = min(moments)
            for job in [job for job in self.running if job.since_s + job.left_s <= self.now_s]:
                self._release(job)
                job.end_s = self.now_s
            while arriving and arriving[-1].arrival_s <= self.now_s:
                self.waiting.append(arriving.pop())
            decide = self._preempt if self.order in ("srtf", "tiresias") else self._start_queue
            decide(sorted(self.waiting, key=self._key))
        return {job.id: job.end_s for job in self.jobs}

    def _key(self, job: Submission) -> tuple[float, int]:
        key = 0.0
        if self.order == "sjf":
            key = job.duration_s
        elif self.order == "edf":
            key = job.deadline_s
        elif self.order == "srtf":
            key = job.left_s - job.ran_s(self.now_s)
        elif self.order == "tiresias":
            key = float((job.attained_s + job.ran_s(self.now_s)) * job.gpus >= THRESHOLD_S - TOLERANCE_S)
        return key, self.rank[job.id]

    def _take(self, job: Submission, nodes: Nodes) -> None:
        for node, count in nodes.items():
            self.free[node] -= count
        job.nodes, job.since_s = nodes, self.now_s
        self.waiting.remove(job)
        self.running.append(job)

    def _release(self, job: Submission) -> None:
        for node, count in job.nodes.items():
            self.free[node] += count
        ran_s = job.ran_s(self.now_s)
        job.left_s, job.attained_s, job.nodes = job.left_s - ran_s, job.attained_s + ran_s, {}
        self.running.remove(job)

    def _start_queue(self, queue: list[Submission]) -> None:
        head: Submission | None = None
        shadow_s, kept = math.inf, [0] * len(self.free)  # devices of each node that are free now and reserved
        for job in queue:
            in_time = self.now_s + job.left_s <= shadow_s + TOLERANCE_S
            may_start = head is None or self.backfill == "first-fit" or in_time
            if may_start and (nodes := fit(self.free, job.gpus, self.node_gpus)):
                kept = [count - min(count, nodes.get(node, 0)) for node, count in enumerate(kept)]
                self._take(job, nodes)
                continue
            if head is not None and self.backfill == "easy":
                open_devices = [count - reserved for count, reserved in zip(self.free, kept, strict=True)]
                if nodes := fit(open_devices, job.gpus, self.node_gpus):
                    self._take(job, nodes)
                continue
            if self.backfill == "none":
                return
            if head is None:
                head = job
                shadow_s, kept = self._reserve(job)

    def _reserve(self, head: Submission) -> tuple[float, list[int]]:
        coming = list(self.free)
        ends_s = sorted({job.since_s + job.left_s for job in self.running})
        for end_s in ends_s:
            for job in self.running:
                if job.since_s + job.left_s == end_s:
                    for node, count in job.nodes.items():
                        coming[node] += count
            if nodes := fit(coming, head.gpus, self.node_gpus):
                later = [count - now for count, now in zip(coming, self.free, strict=True)]
                return end_s, [max(0, nodes.get(node, 0) - later[node]) for node in range(len(coming))]
        return math.inf, [0] * len(coming)

    def _preempt(self, queue: list[Submission]) -> None:
        ordered = sorted([*self.waiting, *self.running], key=self._key)
        place = {job.id: k for k, job in enumerate(ordered)}
        last_first = sorted(self.running, key=lambda job: -place[job.id])
        for job in ordered:
            if job.nodes:
                continue
            free, victims = list(self.free), list[Submission]()
            candidates = iter([other for other in last_first if other.nodes and place[other.id] > place[job.id]])
            while not (nodes := fit(free, job.gpus, self.node_gpus)):
                if (victim := next(candidates, None)) is None:
                    break
                victims.append(victim)
                for node, count in victim.nodes.items():
                    free[node] += count
            if nodes:
                self._stop_on(victims, nodes)
                self._take(job, nodes)

    def _stop_on(self, victims: Sequence[Submission], nodes: Nodes) -> None:
        """Free devices of each node are used first, then those of the victims, the last in order first."""
        stopped: dict[str, Submission] = {}
        for node, count in nodes.items():
            missing = count - self.free[node]
            for victim in victims:
                if missing > 0 and node in victim.nodes:
                    missing -= victim.nodes[node]
                    stopped[victim.id] = victim
        for victim in stopped.values():
            self._release(victim)
            victim.left_s += victim.checkpoint_s
            self.waiting.append(victim)
