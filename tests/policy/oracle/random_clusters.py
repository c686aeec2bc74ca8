"""Random clusters of every kind that a decision may meet: small enough to enumerate, as mixed as real ones.

One to six pending jobs, and one to five devices of one to three known types and sometimes an unknown one. Weights span
twelve decades or are nearly equal; all priorities, caps, memory, residents alone and in pairs, pools, gangs of 1, 2 and
4 devices, windows, deadlines and device limits occur, under every objective and under weighted sums. Slowdowns are
drawn for each device type, so that no type is best for every pair.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from interfere.policy.context import PlanningContext
from interfere.policy.costs.objectives import OBJECTIVES
from interfere.policy.device_class import DeviceClass
from interfere.records import (
    ActionKind,
    Device,
    Job,
    Limits,
    MatrixBatch,
    MatrixPrediction,
    ObjectiveKind,
    ObjectiveTerm,
    PairBatch,
    Prediction,
    Snapshot,
    Window,
)
from interfere.records.checks import MIN_WEIGHT
from interfere.records.cluster import HIGHEST_PRIORITY
from tests.policy.rules.one_pair import GIB, NOW_S, SPREAD, UNKNOWN_TYPE, WORKLOADS, OnePair, RandomSnapshot
from tests.tables import TablePredictor, context, resolver

TYPES = ("fast", "slow", "third")
PRICES = {"fast": 3.0, "slow": 0.9, "third": 1.7, UNKNOWN_TYPE: 1.0}
POWER_W = {"fast": 700.0, "slow": 250.0, "third": 300.0, UNKNOWN_TYPE: 400.0}
SIZES = (1, 1, 1, 1, 2, 4)
SUMMABLE = tuple(kind for kind in ObjectiveKind if not OBJECTIVES[kind].is_min_max)
WEIGHTS = ("equal", "few", "decades", "near")
SlowdownTable = Mapping[tuple[str, str], float]


class TypedTablePredictor:
    """Predicts from one table of slowdowns for each device type."""

    version = "typed-table"

    def __init__(self, tables: Mapping[str, SlowdownTable], fits: SlowdownTable) -> None:
        self._known = TYPES
        self._tables = {
            kind: TablePredictor(table, spread=SPREAD, devices=TYPES, fits=fits) for kind, table in tables.items()
        }

    def knows(self, device_type: str, mode: str) -> str:
        return self._tables[self._known[0]].knows(device_type, mode)

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        return self._tables[batch.device_type].predict_pairs(batch)

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        return self._tables[batch.device_type].predict_matrix(batch, quantile=quantile)


class RandomCluster(RandomSnapshot):
    """Everything of one decision, drawn from one seed."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        pairs = [(victim, neighbour) for victim in WORKLOADS for neighbour in WORKLOADS]
        kinds = (*TYPES, UNKNOWN_TYPE)
        scale = float(rng.choice([0.1, 0.4, 1.0]))
        self.slowdowns = {kind: {pair: self._slowdown(scale) for pair in pairs} for kind in kinds}
        for _ in range(int(rng.choice([0, 0, 1, 3]))):  # the model abstains
            self.slowdowns[str(rng.choice(kinds))][pairs[rng.integers(len(pairs))]] = np.nan
        self.fits = {pair: float(rng.uniform(0.6, 1.0)) for pair in pairs}
        self.profiles = {
            (name, kind): self.profile(name, kind) for name in WORKLOADS for kind in kinds if rng.random() < 0.95
        }
        self.memory_known = rng.random() < 0.5
        self.types = [str(kind) for kind in rng.permutation(TYPES)[: int(rng.integers(1, 4))]]
        self.weights = str(rng.choice(WEIGHTS))
        self.priorities = [int(p) for p in rng.integers(0, HIGHEST_PRIORITY + 1, int(rng.integers(1, 4)))]
        self.hardness = float(rng.choice([0.0, 0.2, 0.6]))  # how often a job or device has a restriction of its own
        self.sizes = SIZES if rng.random() < 0.3 else (1,)
        self.workloads = [str(name) for name in rng.permutation(WORKLOADS)[: int(rng.integers(1, 6))]]
        devices = self._with_residents([self.device(f"d{k}") for k in range(int(rng.integers(1, 6)))])
        pools = {device.pool for device in devices}
        pending = (self.job(f"p{k}", size=int(rng.choice(self.sizes))) for k in range(int(rng.integers(1, 7))))
        self.snapshot = Snapshot(
            pending=tuple(job if set(job.pools) <= pools else replace(job, pools=()) for job in pending),
            devices=tuple(devices),
            limits=self.limits(),
            now_s=NOW_S,
            **self._objective(),
        )

    def _slowdown(self, scale: float) -> float:
        return float(np.float32(1 + self.rng.gamma(1.0, scale)))

    def _restricted(self, probability: float) -> bool:
        return bool(self.rng.random() < probability * self.hardness)

    def _weight(self) -> float:
        rng = self.rng
        drawn = {
            "equal": 1.0,
            "few": float(rng.choice([1.0, 2.0, 4.0])),
            "decades": max(MIN_WEIGHT, float(10 ** rng.uniform(-6, 6))),
            "near": float(rng.choice([0.1, 0.2, 0.3, 1 / 3])) * (1 + 10 ** float(rng.uniform(-9, -2))),
        }
        return drawn[self.weights]

    def _objective(self) -> dict[str, object]:
        rng = self.rng
        if rng.random() < 0.8:
            return {"objective": ObjectiveKind(rng.choice(list(ObjectiveKind)))}
        kinds = rng.permutation(SUMMABLE)[: int(rng.integers(1, 4))]
        terms = (ObjectiveTerm(kind=ObjectiveKind(kind), weight=float(10 ** rng.uniform(-2, 2))) for kind in kinds)
        return {"objective_terms": tuple(terms)}

    def job(self, name: str, size: int = 1) -> Job:
        rng, remaining_s = self.rng, float(self.rng.uniform(10, 200))
        return Job(
            id=name,
            workload=str(rng.choice(self.workloads)),
            gpus=size,
            weight=self._weight(),
            priority=int(rng.choice(self.priorities)),
            max_slowdown=1 + 2 * rng.random() if self._restricted(0.4) else np.nan,
            latency_target_s=rng.uniform(0.02, 0.1) if self._restricted(0.3) else np.nan,
            remaining_s=remaining_s,
            remaining_p90_s=self.maybe(0.3, remaining_s * 1.5),
            attained_s=float(rng.uniform(1, 50)),
            elapsed_s=float(rng.uniform(1, 99) if rng.random() < 0.7 else 10 ** rng.uniform(0, 5)),
            deadline_s=NOW_S + remaining_s * float(rng.uniform(0.9, 8)) if self._restricted(0.8) else np.nan,
            preemptible=bool(rng.random() < 0.4),
            checkpoint_s=self.maybe(0.7, float(rng.uniform(1, 60))),
            pools=(str(rng.choice(["north", "south"])),) if self._restricted(0.4) else (),
            memory_peak_bytes=self.maybe(0.3, rng.uniform(1, 30) * GIB),
            memory_working_set_bytes=self.maybe(0.2, rng.uniform(1, 20) * GIB),
            grant_bytes=self.maybe(0.1, rng.uniform(1, 30) * GIB),
        )

    def device(self, name: str) -> Device:
        rng = self.rng
        kind = UNKNOWN_TYPE if self._restricted(0.2) else str(rng.choice(self.types))
        windows: tuple[Window, ...] = ()
        if self._restricted(0.5):
            from_s = float(rng.choice([0.0, 0.0, 0.0, NOW_S + 20]))
            windows = (Window(from_s=from_s, until_s=NOW_S + float(rng.uniform(30, 400))),)
        grants = self.memory_known and rng.random() < 0.3
        return Device(
            id=name,
            type=kind,
            pool=str(rng.choice(["north", "south"])) if self._restricted(0.7) else "",
            memory_bytes=float(rng.choice([24, 40])) * GIB if self.memory_known else np.nan,
            granule_bytes=2 * GIB if grants else np.nan,
            seats=2 if grants else None,  # else as many as granules; `tests.policy.oracle.seats` draws other numbers
            oversubscription_ratio=1.5 if self.memory_known and rng.random() < 0.2 else 1.0,
            windows=windows,
            price_per_hour=PRICES[kind],
            power_w=POWER_W[kind],
        )

    def _with_residents(self, devices: list[Device]) -> list[Device]:
        """Some devices get one resident or two, some sets of devices of one class a running gang."""
        rng, empty = self.rng, list(range(len(devices)))
        for k in range(int(rng.integers(0, 4))):
            size = int(rng.choice(self.sizes))
            wanted = DeviceClass.of(devices[rng.choice(empty)], NOW_S) if empty else None
            alike = [d for d in empty if DeviceClass.of(devices[d], NOW_S) == wanted]
            if len(alike) < size:
                continue
            residents = [replace(self.job(f"r{k}.{n}", size), pools=()) for n in range(int(rng.choice([1, 1, 1, 2])))]
            for d in alike[:size]:
                devices[d] = replace(devices[d], residents=tuple(residents))
                empty.remove(d)
        return devices

    def limits(self) -> Limits:
        rng = self.rng
        forbidden = [ActionKind.START_SHARED] if rng.random() < 0.03 else []
        forbidden += [ActionKind.START_ALONE] if rng.random() < 0.03 else []
        return Limits.of(
            allowed=frozenset(ActionKind) - frozenset(forbidden),
            max_devices=int(rng.integers(0, 4)) if self._restricted(0.4) else None,
            most_shared_gpus=int(rng.integers(1, 3)) if self._restricted(0.3) else None,
            ageing_s=float(rng.choice([0.0, 60.0])) if self._restricted(0.5) else 300.0,
            soft_cap=1.5,
            max_slowdown=1.2 + 2 * rng.random() if self._restricted(0.4) else np.nan,
            protected_slowdown=1.1 + rng.random() if self._restricted(0.5) else np.nan,
            min_joint_throughput=1.0 if not self._restricted(0.5) else float(rng.choice([0.0, rng.uniform(0.5, 1.9)])),
            risk=float(rng.choice([0.05, 0.2, 0.5])),
            memory_headroom=float(rng.choice([0.0, 0.1])),
            misfit_risk=float(rng.uniform(0.05, 0.4)) if self._restricted(0.3) else np.nan,
            allow_extrapolation=bool(rng.random() < 0.5),
            guest_ends_first=self._restricted(0.3),
        )

    def context(self) -> PlanningContext:
        predictor = TypedTablePredictor(self.slowdowns, self.fits)
        return context(self.snapshot, predictor, resolver(*self.profiles.values()))


class PairOnType(OnePair):
    """The rules on one pair, with the slowdowns of the device type."""

    def _slowdown(self, job: Job) -> float:
        assert isinstance(self.drawn, RandomCluster)
        return self.drawn.slowdowns[self.device_class.type][job.workload, self._other(job).workload]
