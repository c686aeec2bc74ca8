"""Deadlines and edge devices, drawn onto a world.

A job's deadline is its arrival + λ · its duration, λ uniform in a range; a share of jobs has none. The cloud pool is
always present; the edge pool is present at night only, is slower, and may be taken back at random at short notice.
Law: equal worlds and seeds get equal deadlines and devices.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.errors import InvalidInputError
from interfere.records import Device
from interfere.sim.beliefs import MatrixPredictor, beliefs_of_types
from interfere.sim.truth import TruthTable
from interfere.sim.world import DAY_S, HOUR_S, SimDevice, SimJob, Windows, World

BEST_EFFORT_SHARE = 0.2  # of jobs have no deadline: a choice of this scenario, like all constants that follow
FAMILIES = {"tight": (1.05, 1.5), "usual": (1.05, 2.0), "loose": (1.2, 3.0)}  # ranges of λ
EDGE_SHARE = 0.5  # of the nodes of a world
EDGE_SPEED = 0.7
CHECKPOINT_S = 60.0  # usual cost of a stop in worlds with deadlines
NIGHT_H = (22.0, 8.0)
NOTICE_S = 300.0  # before a device is taken back
# Mean time until an edge node is taken back, and for how long: a night of ten hours has two or three such breaks.
REVOKED_EVERY_S, REVOKED_FOR_S = 4 * HOUR_S, HOUR_S
MAX_NIGHTS = 200  # half a year after a trace of a month: its longest job is over within a year
CLOUD, EDGE = "cloud", "edge"  # names of the pools


# --- deadlines --------------------------------------------------------------------------------------------------------


def with_deadlines(world: World, family: str, seed: int) -> World:
    """Return the world with deadlines of one of the `FAMILIES`. Raises InvalidInputError for an unknown family."""
    if family not in FAMILIES:
        raise InvalidInputError("unknown family of deadlines", value=family, remedy=f"one of {', '.join(FAMILIES)}")
    rng = np.random.default_rng(seed)
    factors = rng.uniform(*FAMILIES[family], len(world.jobs)).tolist()
    shares = rng.random(len(world.jobs)).tolist()
    jobs = tuple(
        replace(job, deadline_s=job.arrival_s + factor * job.duration_s if share >= BEST_EFFORT_SHARE else math.inf)
        for job, factor, share in zip(world.jobs, factors, shares, strict=True)
    )
    return replace(world, jobs=jobs)


# --- edge devices -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeSetting:
    """The parameters of an edge world."""

    added: bool = False  # edge nodes are added to the cloud's; else they are some of the world's nodes
    revoked: bool = False  # edge nodes are taken back at random, at `NOTICE_S` notice
    seed: int = 0  # of the revocations

    def apply(self, world: World) -> World:
        """Return the world with a pool of edge devices that are present at night, by the world's time of day.

        With `added` the edge consists of copies of `EDGE_SHARE` of the nodes, and the whole world is the cloud.
        Otherwise these nodes themselves become the edge, the other nodes the cloud, and jobs larger than the cloud are
        left out. Raises InvalidInputError where no cloud is left.
        """
        nodes = list(dict.fromkeys(device.device.node for device in world.devices))
        edge_nodes = nodes[len(nodes) - max(1, round(EDGE_SHARE * len(nodes))) :]
        last_arrival_s = world.jobs[-1].arrival_s if world.jobs else 0.0
        nights = _nights(world.clock_s, last_arrival_s + sum(job.duration_s for job in world.jobs))
        rng = np.random.default_rng(self.seed) if self.revoked else None
        windows = {node: nights if rng is None else _with_revocations(nights, rng) for node in edge_nodes}
        cloud = tuple(
            replace(device, device=replace(device.device, pool=CLOUD))
            for device in world.devices
            if self.added or device.device.node not in windows
        )
        if not cloud:
            raise InvalidInputError(
                f"{world.name}: no node is left for the cloud",
                value=f"{len(nodes)} nodes, {EDGE_SHARE:.0%} of them edge",
                remedy="give more nodes, or an edge beside them (--added)",
            )
        edge = tuple(
            SimDevice(
                device=_edge_device(device.device),
                speed=EDGE_SPEED,
                windows=windows[device.device.node],
                announced=nights,
                notice_s=NOTICE_S,
            )
            for device in world.devices
            if device.device.node in windows
        )
        jobs: tuple[SimJob, ...] = tuple(job for job in world.jobs if job.gpus <= len(cloud))
        return replace(world, devices=(*cloud, *edge), jobs=jobs)


def edge_type(device_type: str) -> str:
    """Return the name that a device type has at the edge, where the same device is slower."""
    return f"{device_type}-{EDGE}"


def edge_truth(truth: TruthTable) -> tuple[TruthTable, TruthTable]:
    """Return the truth in the cloud and at the edge. Slowdowns are the same in both."""
    return truth, replace(truth, device_type=edge_type(truth.device_type))


def edge_beliefs(beliefs: MatrixPredictor, workloads: Sequence[str]) -> MatrixPredictor:
    """Return the same beliefs for these workloads at the edge too. `beliefs` must be of one device type."""
    (cloud,) = beliefs.device_types
    edge = replace(beliefs, device_types=(edge_type(cloud),))
    return beliefs_of_types((beliefs, edge), workloads, {cloud: 1.0, edge_type(cloud): EDGE_SPEED})


def _edge_device(device: Device) -> Device:
    return replace(
        device,
        id=f"{EDGE}-{device.id}",
        node=f"{EDGE}-{device.node}",
        pool=EDGE,
        type=edge_type(device.type),
    )


def _nights(clock_s: float, last_s: float) -> Windows:
    """Return the nights from second 0 until `last_s`, at most `MAX_NIGHTS` of them."""
    days = min(int(last_s // DAY_S) + 2, MAX_NIGHTS)
    opens_s, closes_s = (hour * HOUR_S - clock_s for hour in NIGHT_H)
    nights = ((day * DAY_S + opens_s, (day + 1) * DAY_S + closes_s) for day in range(-1, days))
    return tuple((max(0.0, from_s), until_s) for from_s, until_s in nights if until_s > 0)


def _with_revocations(nights: Windows, rng: np.random.Generator) -> Windows:
    """Return the nights, interrupted by revocations at exponentially distributed times."""
    windows = []
    for from_s, until_s in nights:
        present_s = from_s
        while present_s < until_s:
            leaves_s = min(until_s, present_s + float(rng.exponential(REVOKED_EVERY_S)))
            if leaves_s > present_s:
                windows.append((present_s, leaves_s))
            present_s = leaves_s + REVOKED_FOR_S
    return tuple(windows)
