"""A predictor that reads its slowdowns from a table, so that a test can state every prediction."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from interfere.errors import InvalidInputError, UnfitError
from interfere.policy.context import JobCatalogue, PlanningContext, ProfileLookup
from interfere.policy.deadlines.guarantees import find_infeasible_deadlines
from interfere.policy.solve.planner import plan_pending_jobs
from interfere.policy.validate import validate_snapshot
from interfere.protocols import Predictor
from interfere.records import (
    NAN,
    Job,
    JobProfile,
    MatrixBatch,
    MatrixPrediction,
    PairBatch,
    Plan,
    Prediction,
    Snapshot,
    Source,
)
from interfere.time_budget import TimeBudget

DEVICE = "cpu-core"


def profile(workload: str, *, peak_bytes: float = NAN, device_type: str = DEVICE) -> JobProfile:
    """A profile with a step time and, optionally, a memory peak."""
    return JobProfile(workload=workload, device_type=device_type, step_time_s=0.01, memory_peak_bytes=peak_bytes)


class TablePredictor:
    """Predicts slowdown[victim, neighbour] by workload.

    `spread` is the ratio of the interval's upper end to the median; `fits` is the probability that two workloads fit a
    device, 1 for pairs that it does not name.
    """

    version = "table"

    def __init__(
        self,
        slowdown: Mapping[tuple[str, str], float],
        *,
        spread: float = 1.0,
        devices: tuple[str, ...] = (DEVICE,),
        fits: Mapping[tuple[str, str], float] | None = None,
    ) -> None:
        self._fits = fits or {}
        self._slowdown, self._spread, self._devices = slowdown, spread, devices

    def knows(self, device_type: str, mode: str) -> str:
        return "" if device_type in self._devices else f"the model never saw {device_type}/{mode}: measure pairs there"

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        names = [job.workload for job in batch.jobs]
        median = np.array(
            [self._slowdown[names[i], names[j]] for i, j in zip(batch.victim, batch.neighbour, strict=True)],
            dtype=float,
        )
        p = len(median)
        if not batch.allow_extrapolation and (unknown_domain := self.knows(batch.device_type, batch.mode)):
            absent = np.full(p, np.nan)
            return Prediction(
                median=absent,
                lower=absent,
                upper=absent,
                feasibility=absent,
                source=(Source.ABSTAINED,) * p,
                reason=(unknown_domain,) * p,
            )
        return Prediction(
            median=median,
            lower=median / self._spread,
            upper=median * self._spread,
            feasibility=np.full(p, np.nan),
            source=(Source.MODEL,) * p,
            reason=("",) * p,
        )

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        if not batch.allow_extrapolation and (unknown_domain := self.knows(batch.device_type, batch.mode)):
            raise UnfitError("no model for this domain", value=batch.device_type, remedy=unknown_domain)
        scale = self._spread ** ((quantile - 0.5) / 0.45)
        ahead = [[self._slowdown[v.workload, n.workload] * scale for n in batch.neighbours] for v in batch.victims]
        back = [[self._slowdown[n.workload, v.workload] * scale for n in batch.neighbours] for v in batch.victims]
        return MatrixPrediction(
            victim_slowdown=np.array(ahead, dtype=np.float32).reshape(batch.shape),
            neighbour_slowdown=np.array(back, dtype=np.float32).reshape(batch.shape),
            feasible=np.ones(batch.shape, dtype=np.uint8),
            feasibility=np.array(
                [[self._fits.get((v.workload, n.workload), 1.0) for n in batch.neighbours] for v in batch.victims]
            ).reshape(batch.shape),
        )


def matrix_batch(
    victims: Sequence[JobProfile],
    neighbours: Sequence[JobProfile] | None = None,
    device_type: str = DEVICE,
    mode: str = "timeslice",
    **more: Any,
) -> MatrixBatch:
    """All victims beside all neighbours; the victims beside one another where no neighbours are given."""
    return MatrixBatch(
        victims=tuple(victims),
        neighbours=tuple(victims if neighbours is None else neighbours),
        device_type=device_type,
        mode=mode,
        **more,
    )


def resolver(*profiles: JobProfile):
    """A function that finds the profile of a job on a device type among the given ones."""
    known = {(p.workload, p.device_type): p for p in profiles}

    def resolve(job: Job, device_type: str) -> JobProfile | None:
        return known.get((job.workload, device_type))

    return resolve


def catalogue(known: JobCatalogue | Callable[[Job, str], JobProfile | None]) -> JobCatalogue:
    """A job catalogue: the one given, or one over a function from (job, device type) to its profile."""
    return ProfileLookup(profiles=known) if callable(known) else known


def context(
    snapshot: Snapshot,
    predictor: Predictor,
    known: JobCatalogue | Callable[[Job, str], JobProfile | None],
    decision_id: str = "d",
    types: Sequence[str] = (),
) -> PlanningContext:
    """The context of one decision."""
    return PlanningContext(
        snapshot=snapshot,
        predictor=predictor,
        catalogue=catalogue(known),
        decision_id=decision_id,
        other_device_types=tuple(types),
    )


def plan(context: PlanningContext) -> Plan:
    """The plan for one snapshot, without a ledger. Raises InvalidInputError when the snapshot contradicts itself."""
    violations = validate_snapshot(context.snapshot, context.custom_objective)
    if violations:
        raise InvalidInputError.from_violations(violations)
    if context.budget.unlimited:
        context = replace(context, budget=TimeBudget.of_search(context.limits.timing.time_budget_s))
    infeasible = find_infeasible_deadlines(context)
    feasible_plan = plan_pending_jobs(context.with_snapshot(infeasible.snapshot))
    stopped_by = "time budget" if context.budget.was_cut else ""
    return replace(feasible_plan, actions=infeasible.annotate(feasible_plan.actions, ()), stopped_by=stopped_by)
