"""Worlds with deadlines and idle edge devices: drawn once, saved, read back, and scored.

A job's deadline is its arrival + λ · its duration, λ uniform in a range; a share of jobs has none. The cloud pool is
the world as it was; the edge pool is there at night only, slower, and may be taken back during it at short notice.
Law: draws that are read back are the draws that were made; a world with other jobs refuses them.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from interfere.errors import InvalidInputError
from interfere.records import Device
from interfere.sim.replay import Replayed
from interfere.sim.world import SimDevice, World

DAY_S, HOUR_S = 86_400.0, 3_600.0
BEST_EFFORT = 0.2  # share of jobs without a deadline: a choice of this scenario, like all that follow
FAMILIES = {"tight": (1.05, 1.5), "usual": (1.05, 2.0), "loose": (1.2, 3.0)}  # of λ
EDGE_SPEED = 0.7
CHECKPOINT_S = 60.0
NIGHT_H = (22.0, 8.0)
NOTICE_S = 300.0  # before a device is taken back
# Taken back once in four hours of a night, for one: a night of ten hours has two or three such breaks a node.
TAKEN_EVERY_S, TAKEN_FOR_S = 4 * HOUR_S, HOUR_S
MOST_NIGHTS = 200  # half a year after a trace of a month: its longest job is over within one
CLOUD, EDGE = "cloud", "edge"
LATE_S = 1e-6  # rounding of the clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Deadlines of the jobs of one world, by id; a job that is not there has none."""

    world: str
    family: str
    seed: int
    deadline_s: Mapping[str, float]
    jobs: int  # of the world


def save_draws(path: Path, draws: Sequence[Draws]) -> None:
    """Of the worlds of one trace, as one JSON document."""
    documents = [{**asdict(one), "deadline_s": dict(one.deadline_s)} for one in draws]
    path.write_text(json.dumps({"draws": documents}, indent=0), encoding="utf-8")


def read_draws(path: Path) -> tuple[Draws, ...]:
    """Inverse of `save_draws`. Raises InvalidInputError that names the file."""
    try:
        return tuple(
            Draws(
                world=str(found["world"]),
                family=str(found["family"]),
                seed=int(found["seed"]),
                jobs=int(found["jobs"]),
                deadline_s={str(k): float(v) for k, v in found["deadline_s"].items()},
            )
            for found in json.loads(path.read_text(encoding="utf-8"))["draws"]
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(
            f"not a file of deadlines ({type(error).__name__}: {error})",
            value=str(path),
            remedy="give one that `interfere replay --deadlines` wrote",
        ) from None


def drawn(world: World, family: str, seed: int, best_effort: float = BEST_EFFORT) -> Draws:
    """Deadlines of one family of `FAMILIES`. Raises InvalidInputError for a family nobody knows."""
    if family not in FAMILIES:
        raise InvalidInputError("unknown family of deadlines", value=family, remedy=f"one of {', '.join(FAMILIES)}")
    rng = np.random.default_rng(seed)
    low, high = FAMILIES[family]
    found = {}
    for job, factor, share in zip(
        world.jobs, rng.uniform(low, high, len(world.jobs)), rng.random(len(world.jobs)), strict=True
    ):
        if share >= best_effort:
            found[job.id] = job.arrival_s + float(factor) * job.duration_s
    return Draws(world=world.name, family=family, seed=seed, deadline_s=found, jobs=len(world.jobs))


def with_deadlines(world: World, draws: Draws) -> World:
    """The world with these deadlines. Raises InvalidInputError where they are of another world."""
    unknown = set(draws.deadline_s) - {job.id for job in world.jobs}
    if unknown or draws.jobs != len(world.jobs) or draws.world != world.name:
        raise InvalidInputError(
            f"these deadlines are of another world than {world.name} with {len(world.jobs)} jobs",
            value=f"{draws.world} with {draws.jobs} jobs",
            remedy="draw them anew, or replay the world they are of",
        )
    jobs = tuple(
        replace(job, deadline_s=draws.deadline_s.get(job.id, math.inf), checkpoint_s=CHECKPOINT_S) for job in world.jobs
    )
    return replace(world, jobs=jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeWorld:
    """A world of two pools, and what is known of the edge: `notice_s` before it happens, nobody knows that a device
    will be taken back before the night is over."""

    world: World
    nights: tuple[tuple[float, float], ...]
    notice_s: float = NOTICE_S

    def known_s(self, one: SimDevice, now_s: float) -> tuple[tuple[float, float], ...]:
        """The windows of a device as far as they are known, the one of now first; empty: always."""
        if one.device.pool != EDGE:
            return ()
        ahead = tuple(night for night in self.nights if night[1] > now_s)[:2]
        goes_s = one.until_s(now_s)
        if goes_s <= now_s:  # it is taken now: nobody knows when it comes back
            return tuple(night for night in ahead if night[0] > now_s) or ((math.inf, math.inf),)
        return ((ahead[0][0], goes_s), *ahead[1:]) if goes_s - now_s <= self.notice_s else ahead


def with_edge(
    world: World, *, clock_s: float, share: float = 0.5, instead: bool = False, taken: int | None = None
) -> EdgeWorld:
    """The world as the cloud, and `share` of its nodes again as the edge; `instead`: these nodes are the edge, and the
    cloud is the others, without the jobs that are too large for it. `clock_s` is the time of day at 0.

    `taken`: a seed with which nodes of the edge are taken back at random; None: never before morning. Raises
    InvalidInputError where no cloud is left.
    """
    nodes = list(dict.fromkeys(one.device.node for one in world.devices))
    idle = set(nodes[len(nodes) - max(1, round(share * len(nodes))) :])
    last_s = world.jobs[-1].arrival_s if world.jobs else 0.0
    nights = _nights(clock_s, last_s + sum(job.duration_s for job in world.jobs))
    rng = None if taken is None else np.random.default_rng(taken)
    windows = {node: nights if rng is None else _broken(nights, rng) for node in nodes if node in idle}
    cloud = tuple(
        replace(one, device=replace(one.device, pool=CLOUD))
        for one in world.devices
        if not instead or one.device.node not in idle
    )
    if not cloud:
        raise InvalidInputError(
            f"{world.name}: no node is left for the cloud",
            value=f"{len(nodes)} nodes, {share:.0%} of them edge",
            remedy="give more nodes, or an edge beside them (--added)",
        )
    edge = tuple(
        SimDevice(device=_at_edge(one.device), speed=EDGE_SPEED, windows=windows[one.device.node])
        for one in world.devices
        if one.device.node in idle
    )
    jobs = tuple(job for job in world.jobs if job.gpus <= len(cloud))
    return EdgeWorld(world=replace(world, devices=(*cloud, *edge), jobs=jobs), nights=nights)


def edge_type(kind: str) -> str:
    """The name of a device type at the edge, where it is slower."""
    return f"{kind}-{EDGE}"


def _at_edge(device: Device) -> Device:
    name = f"{EDGE}-{device.id}"
    return replace(device, id=name, node=f"{EDGE}-{device.node}", pool=EDGE, type=edge_type(device.type))


def _nights(clock_s: float, until_s: float) -> tuple[tuple[float, float], ...]:
    """From 0 on, as many as could matter; whoever runs after `MOST_NIGHTS` runs in the cloud."""
    days = min(int(until_s // DAY_S) + 2, MOST_NIGHTS)
    opens, closes = (hour * HOUR_S - clock_s for hour in NIGHT_H)
    each = ((day * DAY_S + opens, (day + 1) * DAY_S + closes) for day in range(-1, days))
    return tuple((max(0.0, from_s), to_s) for from_s, to_s in each if to_s > 0)


def _broken(nights: tuple[tuple[float, float], ...], rng: np.random.Generator) -> tuple[tuple[float, float], ...]:
    """The nights with what is taken back out of them."""
    found = []
    for from_s, to_s in nights:
        at_s = from_s
        while at_s < to_s:
            goes_s = min(to_s, at_s + float(rng.exponential(TAKEN_EVERY_S)))
            if goes_s > at_s:
                found.append((at_s, goes_s))
            at_s = goes_s + TAKEN_FOR_S
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineScore:
    """What a scheduler made of it."""

    with_deadline: int
    met: int
    best_effort_jct_s: float  # mean over jobs without a deadline; NaN without any
    wasted_gpu_h: float  # device hours of jobs that missed, and of checkpoints; half where the device was shared
    used_gpu_h: float
    promised: int = 0
    broken: int = 0

    @property
    def satisfaction(self) -> float:
        """Deadlines met over all submitted jobs that have one, dropped ones too."""
        return self.met / self.with_deadline if self.with_deadline else math.nan


def scored(found: Replayed, promised: Mapping[str, float] | None = None) -> DeadlineScore:
    """`promised`: the deadlines that a scheduler accepted."""
    jobs = {job.id: job for job in found.world.jobs}
    ended = dict(zip(jobs, found.ended_s.tolist(), strict=True))
    stops = dict(zip(jobs, found.stops.tolist(), strict=True))
    met = {name for name, job in jobs.items() if ended[name] <= job.deadline_s + LATE_S}
    wasted = used = 0.0
    for span in found.spans:
        hours = (span.end_s - span.start_s) * jobs[span.job_id].gpus / HOUR_S * (0.5 if span.partner_id else 1.0)
        used += hours
        wasted += hours if span.job_id not in met else 0.0
    wasted += sum(stops[name] * jobs[name].checkpoint_s * jobs[name].gpus / HOUR_S for name in met)
    free = [ended[name] - job.arrival_s for name, job in jobs.items() if math.isinf(job.deadline_s)]
    dated = [name for name, job in jobs.items() if not math.isinf(job.deadline_s)]
    return DeadlineScore(
        with_deadline=len(dated),
        met=len(met.intersection(dated)),
        wasted_gpu_h=wasted,
        used_gpu_h=used,
        best_effort_jct_s=float(np.mean(free)) if free else math.nan,
        promised=len(promised or {}),
        broken=sum(ended[name] > at_s + LATE_S for name, at_s in (promised or {}).items()),
    )
