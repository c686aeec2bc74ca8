"""Stages of a quickstart without a machine: measurements, a model and a server that a test puts there."""

import math
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from interfere.commands.quickstart.pairings import Direction, Pairing, all_pairs, directions
from interfere.commands.quickstart.stages import Progress, Stages
from interfere.errors import UnfitError
from interfere.records import Action, ActionKind, Alternative, Explanation, PairMeasurement, PairStatus
from interfere.sharing_modes import DEFAULT_MODE

NAMES = (
    "resnet-train",
    "resnet-input",
    "bert-infer",
    "bert-serve",
    "gpt-decode",
    "stream",
    "request-server",
    "rl-rollout",
)
PAIRING: Pairing = tuple(zip(NAMES[::2], NAMES[1::2], strict=True))
SCORES = {"pair": {"gbdt": {"mae": 0.031, "mape": 4.5}, "mean": {"mae": 0.1, "mape": 14.0}}}


def row(
    victim: str, neighbour: str, slowdown: float, *, log_error: float = 0.01, ok: bool = True, steal: float = 0.0
) -> PairMeasurement:
    """A measurement whose interval is that of a normal distribution."""
    width = math.exp(1.96 * log_error)
    return PairMeasurement(
        victim=victim,
        neighbour=neighbour,
        device_type="cpu-core",
        mode=DEFAULT_MODE,
        slowdown=slowdown if ok else math.nan,
        lower=slowdown / width if ok else math.nan,
        upper=slowdown * width if ok else math.nan,
        passes=(slowdown,),
        status=PairStatus.OK if ok else PairStatus.UNSTABLE,
        reason="" if ok else "other processes took 40% of the core",
        steal_frac=steal,
    )


def true_slowdowns(seed: int = 0) -> dict[Direction, float]:
    """A slowdown of every direction of two different jobs."""
    draw = random.Random(seed)
    return {pair: 1 + draw.random() for pair in directions(all_pairs(NAMES))}


@dataclass(frozen=True, kw_only=True)
class InjectedStages(Stages):
    """Measurements of `truth` but for the unstable directions; a server that predicts `predicted`."""

    work: Path = Path()
    truth: Mapping[Direction, float] = field(default_factory=true_slowdowns)
    predicted: Mapping[Direction, float] = field(default_factory=true_slowdowns)
    unstable_first: Collection[Direction] = ()
    unstable_again: Collection[Direction] = ()
    reason: str = ""
    calls: list[str] = field(default_factory=list)
    too_noisy: bool = False
    ends_in: str = ""  # the stage in which the run is killed

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name == self.ends_in:
            raise KeyboardInterrupt

    def reason_not_to_measure(self) -> str:
        return self.reason

    def measure_all(self, progress: Progress) -> Sequence[PairMeasurement]:
        self._called("measure_all")
        progress(12.0, "gemm beside stream")
        return [row(*pair, value, ok=pair not in self.unstable_first, steal=0.1) for pair, value in self.truth.items()]

    def measure_pairs(self, pairs: Sequence[tuple[str, str]], progress: Progress) -> Sequence[PairMeasurement]:
        self._called("measure_pairs")
        return [row(*pair, self.truth[pair], ok=pair not in self.unstable_again) for pair in directions(pairs)]

    def train(
        self, held_out: Sequence[tuple[str, str]], progress: Progress, *, with_measured: bool
    ) -> Mapping[str, Any]:
        self._called(f"train {'with' if with_measured else 'without'} measured")
        if with_measured and self.too_noisy:
            raise UnfitError("'interfere train' failed", value="its passes disagree")
        return {"model": "gbdt", "is_champion": True, "folder": "models/champion", "scores": SCORES}

    @contextmanager
    def serve(self, model: str) -> Iterator[Any]:
        self._called(f"serve {model}")
        yield self

    # --- the client -------------------------------------------------------------------------------------------------

    def predict(self, names: Sequence[str], *, device_type: str, mode: str) -> Any:
        pairs = list(self.predicted)
        median = np.array([self.predicted[pair] for pair in pairs])
        return SimpleNamespace(
            victim=np.array([names.index(a) for a, _ in pairs]),
            neighbour=np.array([names.index(b) for _, b in pairs]),
            prediction=SimpleNamespace(median=median, lower=median / 1.1, upper=median * 1.1),
        )

    def match(self, snapshot: Any) -> Any:
        pairs = [SimpleNamespace(job_id=a, partner_id=b) for a, b in PAIRING]
        return SimpleNamespace(
            decision_id="d1",
            model_version="v1",
            status="OPTIMAL",
            cost=1.0,
            greedy_cost=1.2,
            lower_bound=1.0,
            pairs=pairs,
        )

    def explain(self, decision_id: str, job_id: str) -> Explanation:
        action = Action(kind=ActionKind.START_SHARED, job_id=job_id, partner_id=NAMES[1], reason="least cost")
        choice = Alternative(
            kind=ActionKind.START_SHARED, partner_id=NAMES[1], slowdown=1.2, cost=1.0, waiting=0, waiting_weight=0.0
        )
        return Explanation(
            decision_id=decision_id,
            scope="default",
            workload=job_id,
            action=action,
            pairs=(),
            alternatives=(choice,),
            left_out=0,
            refused=(),
            refused_total=0,
            model_version="v1",
            changed=(),
        )

    def observe(self, reports: Sequence[Any]) -> list[Any]:
        self._called("observe")
        return [SimpleNamespace(result=SimpleNamespace(value="applied")) for _ in reports]
