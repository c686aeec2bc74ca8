"""Why a job got what it got: a stored decision looked at again with what is known now.

The core's lock is held while costs are predicted, which a decision does too, not while alternatives are solved for.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np

from interfere.errors import NotFoundError, UnavailableError
from interfere.policy.answer.alternatives import alternatives, refusals
from interfere.policy.answer.subproblem import subproblem_of
from interfere.policy.context import JobCatalogue, PlanningContext
from interfere.policy.costs.candidates import Candidates, find_candidates
from interfere.policy.deadlines.infeasible import settle
from interfere.policy.device_class import DeviceClass
from interfere.predict.occlusion import Occlusion
from interfere.predict.online.unprofiled_jobs import COLD
from interfere.protocols import Predictor
from interfere.records import (
    Action,
    Contribution,
    Device,
    Explanation,
    Job,
    JobProfile,
    PairBatch,
    PairExplanation,
    Plan,
    Prediction,
    Snapshot,
    Source,
)
from interfere.store.protocol import Account, AccountBook
from interfere.time_budget import TimeBudget
from interfere.v1 import policy_pb2 as pb
from interfere.wire.cluster import snapshot_from_proto
from interfere.wire.messages import ExplainQuery
from interfere.wire.plans import plan_from_proto

MOST_CONTRIBUTIONS = 10  # of one prediction
TIME_S = 3.0  # for alternatives, a third of what a client waits; ten of 1,000 jobs take 0.5 s
LEAST_CHANGE = 1e-6  # of a log slowdown: smaller ones are rounding of the graph's float32
MEASURED, LEARNED = "this very pair was measured", "what was observed since the training"


class Knowledge(NamedTuple):
    """What a decision was made from besides its snapshot. Taken before the decision: it may know more, never less."""

    model_version: str
    learned_upto: int  # last entry of the log
    facts: str  # digest of the newest profiles

    def since(self, account: Account) -> tuple[str, ...]:
        """What is known now and was not then, in words."""
        found = []
        if account.model_version != self.model_version:
            found.append(f"another model: {account.model_version} decided, {self.model_version} explains")
        if account.learned_upto != self.learned_upto:
            found.append(f"log entries: {self.learned_upto - account.learned_upto}")
        if account.facts != self.facts:
            found.append("newer profiles")
        return tuple(found)


class Explainer:
    """Reads decisions of a book; `online` gives the model with what was learned, `inner` is the same without."""

    def __init__(
        self,
        book: AccountBook,
        occlusion: Occlusion,
        inner: Predictor,
        online: Callable[[], Predictor],
        catalogue: Callable[[], JobCatalogue],
        lock: AbstractContextManager[object],
        with_grants: Callable[[Snapshot], Snapshot],
    ) -> None:
        """`with_grants`: a snapshot with the memory that its residents hold."""
        self._book, self._occlusion, self._inner = book, occlusion, inner
        self._online, self._catalogue, self._lock, self._with_grants = online, catalogue, lock, with_grants

    def remember(self, decision_id: str, scope: str, knowledge: Knowledge, request: bytes, answer: bytes) -> None:
        """Keep what a decision was made from. On a full disk it is only not explained."""
        account = Account(
            decision_id=decision_id,
            scope=scope,
            request=request,
            answer=answer,
            model_version=knowledge.model_version,
            learned_upto=knowledge.learned_upto,
            facts=knowledge.facts,
        )
        with contextlib.suppress(UnavailableError):
            self._book.put(account)

    def explain(self, query: ExplainQuery, now: Knowledge) -> Explanation:
        """Raises NotFoundError for a decision or job nobody knows."""
        account, decided, action = self._find(query)
        request = snapshot_from_proto(pb.MatchRequest.FromString(account.request))
        context = PlanningContext(snapshot=request, predictor=self._inner, catalogue=self._catalogue())
        snapshot = settle(context).snapshot
        jobs = {job.id: job for job in (*snapshot.pending, *(r for d in snapshot.devices for r in d.residents))}
        devices = {device.id: device for device in snapshot.devices}
        part, types = subproblem_of(snapshot, decided, query.job_id), [device.type for device in snapshot.devices]
        where = DeviceClass.of(devices[action.device_id], snapshot.now_s) if action.device_id in devices else None
        with self._lock:
            pairs = tuple(self._pairs(action, jobs, devices))
            candidates = self._candidates(part, types) if part else None
        refused, refused_total = refusals(candidates, action) if candidates else ((), 0)
        solved, left_out = alternatives(candidates, action, where, TimeBudget(TIME_S)) if candidates else ((), 0)
        return Explanation(
            decision_id=query.decision_id,
            scope=account.scope,
            workload=jobs[query.job_id].workload if query.job_id in jobs else "",
            action=action,
            pairs=pairs,
            alternatives=solved,
            left_out=left_out,
            refused=refused,
            refused_total=refused_total,
            model_version=self._inner.version,
            changed=now.since(account),
        )

    def _candidates(self, part: Snapshot, types: Sequence[str]) -> Candidates:
        """Costs of everything that could happen in a subproblem, with what is known now."""
        return find_candidates(
            PlanningContext(
                snapshot=self._with_grants(part),
                predictor=self._online(),
                catalogue=self._catalogue(),
                other_device_types=tuple(types),
            )
        )

    def _find(self, query: ExplainQuery) -> tuple[Account, Plan, Action]:
        account = self._book.find(query.decision_id)
        if account is None or query.scope not in ("", account.scope):
            where = f" of scope {query.scope!r}" if query.scope else ""
            raise NotFoundError(
                f"no such decision{where}",
                value=query.decision_id,
                remedy="decision ids come with the answers of Match; the newest are kept, the others forgotten",
            )
        decided = plan_from_proto(pb.MatchResponse.FromString(account.answer))
        for action in decided.actions:
            if action.job_id == query.job_id:
                return account, decided, action
        some = ", ".join(action.job_id for action in decided.actions[:5]) or "none"
        raise NotFoundError(
            f"decision {query.decision_id} decided nothing about this job",
            value=query.job_id,
            remedy=f"one of its {len(decided.actions)} jobs: {some}{', ...' if len(decided.actions) > 5 else ''}",
        )

    # --- predictions ------------------------------------------------------------------------------------------------

    def _pairs(self, action: Action, jobs: dict[str, Job], devices: dict[str, Device]) -> Iterator[PairExplanation]:
        """The job beside its partner, and the partner beside the job; none without a partner."""
        job, partner, device = jobs.get(action.job_id), jobs.get(action.partner_id), devices.get(action.device_id)
        if job is None or partner is None or device is None:
            return
        for victim, neighbour in ((job, partner), (partner, job)):
            own, other = (self._catalogue().profile(one, device.type) for one in (victim, neighbour))
            if own is not None and other is not None:
                yield self._pair((victim.id, neighbour.id), (own, other), device)

    def _pair(self, names: tuple[str, str], facts: tuple[JobProfile, JobProfile], device: Device) -> PairExplanation:
        batch = PairBatch(
            jobs=facts,
            victim=np.array([0]),
            neighbour=np.array([1]),
            device_type=device.type,
            mode=device.mode,
            allow_extrapolation=True,
        )
        said, before = self._online().predict_pairs(batch), self._inner.predict_pairs(batch)
        alone = self._occlusion.log_slowdown(*facts, device.type, device.mode)
        table, now = (math.log(float(answer.median[0])) for answer in (before, said))
        cold = COLD in (facts[0].source, facts[1].source)
        contributions = [] if cold else self._facts(names, facts, device)
        if before.source[0] is Source.MEASURED:
            contributions.append(Contribution(job_id="", name=MEASURED, log_change=table - alone))
        if now != table and not cold:
            contributions.append(Contribution(job_id="", name=LEARNED, log_change=now - table))
        moved = [one for one in contributions if abs(one.log_change) > LEAST_CHANGE]
        return PairExplanation(
            victim_id=names[0],
            neighbour_id=names[1],
            median=float(said.median[0]),
            lower=float(said.lower[0]),
            upper=float(said.upper[0]),
            source=said.source[0],
            note=_note(before, cold=cold, alone=math.exp(alone)),
            contributions=tuple(sorted(moved, key=lambda one: -abs(one.log_change))[:MOST_CONTRIBUTIONS]),
        )

    def _facts(
        self, names: tuple[str, str], facts: tuple[JobProfile, JobProfile], device: Device
    ) -> list[Contribution]:
        return [
            Contribution(
                job_id=names[0 if effect.of_victim else 1],
                name=effect.fact,
                log_change=effect.log_change,
                value=effect.value,
                reference=effect.reference,
                unit=effect.unit,
            )
            for effect in self._occlusion.effects(*facts, device.type, device.mode)
        ]


def _note(before: Prediction, *, cold: bool, alone: float) -> str:
    if cold:
        return "no profile of one of the two: the number rests on what was observed of them, not on facts"
    if before.source[0] is Source.MEASURED:
        return f"measured; from the facts alone the model would say {alone:.2f} ×, and the facts below moved that"
    return ""
