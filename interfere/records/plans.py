"""Decisions: plans with their actions, pairs and refusals, rankings of devices for one job, and their explanations."""

import math
from collections.abc import Iterable
from dataclasses import field
from enum import StrEnum

from interfere.records.checks import NAN
from interfere.records.cluster import Device, Job
from interfere.records.limits import ActionKind, Limits, ObjectiveKind
from interfere.records.predictions import Source
from interfere.records.record import record
from interfere.records.rules import Rule, RuleKind
from interfere.sharing_modes import OptionalSharingMode


@record
class SlotRange:
    """Consecutive memory slots of one device: granules of its memory, numbered from 0."""

    device_id: str
    first: int
    last: int  # included

    @property
    def text(self) -> str:
        """Return the range as Linux writes lists of CPUs: 4-7, or 4 for one slot."""
        return f"{self.first}-{self.last}" if self.last > self.first else str(self.first)


def slots_text(slots: Iterable[SlotRange] | None, separator: str = ",") -> str:
    """Return the slots of one device as a list of ranges; empty where there are none."""
    return separator.join(each.text for each in slots or ())


@record
class Action:
    """The action for one job and its reason: the rule behind the action, and the same rule in words.

    >>> from interfere import Action, ActionKind
    >>> action = Action(kind=ActionKind.START_SHARED, job_id="j1", device_id="d0", partner_id="j2", slowdown=1.2)
    >>> action.places
    ('d0',)
    """

    kind: ActionKind
    job_id: str
    device_id: str = ""
    partner_id: str = ""
    slowdown: float = NAN  # predicted, of this job
    slowdown_lower: float = NAN
    slowdown_upper: float = NAN
    partner_slowdown: float = NAN
    cost: float = NAN  # of the group in the objective
    reason: str = ""  # the rule in words, and what else is to be said of the action
    promised_by_s: float = NAN  # the place is kept until then, on the caller's clock
    device_ids: tuple[str, ...] = ()  # all devices of a gang, `device_id` first; empty for a job on one device
    grant_bytes: float = NAN  # memory granted to it on each of its devices, in whole granules; absent without grants
    accepted: bool = False  # its deadline is promised: no job of equal or lower priority starts at the cost of it
    rule: Rule | None = None  # absent from decisions that were stored before there were rules, and from a fallback
    # Every co-located job, `partner_id` first, and their predicted slowdowns, where there are two or more.
    partner_ids: tuple[str, ...] = ()
    partner_slowdowns: tuple[float, ...] = ()
    mode: OptionalSharingMode = ""  # that the plan chose for its device; empty where there was no choice
    planned_start_s: float = NAN  # by the plan over time, on the caller's clock; absent without such a plan
    planned_end_s: float = NAN
    promised_end_s: float = NAN  # by when the job was promised to end, on the caller's clock
    slots: tuple[SlotRange, ...] | None = None  # that hold its grant, of each of its devices; absent without grants

    @property
    def partners(self) -> tuple[str, ...]:
        """The ids of all jobs that share a device with this job."""
        return self.partner_ids or ((self.partner_id,) if self.partner_id else ())

    @property
    def slowdown_of_partners(self) -> dict[str, float]:
        """The predicted slowdown of each job that shares a device with this job, by job id."""
        if self.partner_ids:
            return dict(zip(self.partner_ids, self.partner_slowdowns, strict=True))
        return {self.partner_id: self.partner_slowdown} if self.partner_id else {}

    @property
    def places(self) -> tuple[str, ...]:
        """The ids of all devices of the action; empty when the job waits."""
        return self.device_ids or ((self.device_id,) if self.device_id else ())


@record
class Pairing:
    """Two jobs that will share a device: a pending one and its partner, pending or resident."""

    job_id: str
    partner_id: str
    device_id: str
    weight: float  # cost of the pair in the objective: w_i (s_ij - 1) + w_j (s_ji - 1) by default


@record
class Refusal:
    """A pair of jobs that may not share a device, with the first rule that forbids it. Without a partner, the job
    may not even start alone."""

    job_id: str
    partner_id: str
    reason: str  # the rule in words
    rule: Rule | None = None  # absent from decisions that were stored before there were rules


class SolveStatus(StrEnum):
    """How good a placement is proved to be."""

    OPTIMAL = "OPTIMAL"
    BOUNDED = "BOUNDED"
    HEURISTIC = "HEURISTIC"
    INFEASIBLE = "INFEASIBLE"


class LevelKind(StrEnum):
    """The quantity that one level of a decision sums."""

    WAITING_WEIGHT = "waiting_weight"  # start weights of the jobs of one priority that wait
    COST = "cost"  # of the jobs of one priority, or of all
    MAX_COST = "max_cost"  # the largest cost of a job, for a min-max objective


@record
class PlanLevel:
    """One level of a decision. It is minimised among the placements that are optimal at all earlier levels."""

    kind: LevelKind
    value: float
    lower_bound: float  # of every placement that is as good at the levels before
    priority: int | None = None  # of the jobs that count; None where all do


@record
class HeuristicValue:
    """The projected objective of one named scheduling heuristic."""

    name: str  # its order, which job it protects, and how it lets jobs share: shortest+easy+sharing
    value: float


@record
class Plan:
    """One decision; waiting jobs are counted apart.

    `levels` says what was minimised one after the other, with a bound of each; the plan is OPTIMAL where every level is
    within 1e-7 of its bound, relative. `cost` adds up what starts. `objective_value` is what the objective itself says:
    the same, or the largest cost of a job for a min-max objective; `greedy_cost`, `lower_bound` (the sum of the cost
    levels' bounds) and `gap` are on its scale.

    A client answers with one, here in place of a server that is away:

    >>> from interfere import Device, Job, PolicyClient, Snapshot
    >>> from interfere.client import AloneFallback
    >>> snapshot = Snapshot(pending=(Job(id="j1", workload="gemm"),), devices=(Device(id="d0", type="cpu-core"),))
    >>> with PolicyClient("127.0.0.1:1", timeout_s=1.0, fallback=AloneFallback()) as client:
    ...     plan = client.match(snapshot)
    >>> [(action.job_id, action.kind.value, action.device_id) for action in plan.actions]
    [('j1', 'start_alone', 'd0')]
    """

    decision_id: str
    model_version: str
    actions: tuple[Action, ...]  # one per pending job, in order; then actions for residents, where allowed
    pairs: tuple[Pairing, ...]
    refused: tuple[Refusal, ...]  # at most the first `MAX_REFUSALS` of them
    refused_total: int
    cost: float
    greedy_cost: float
    greedy_waiting: int  # jobs that greedy would leave waiting
    lower_bound: float
    gap: float
    status: SolveStatus
    resolve_at_s: float = NAN  # when to ask again, on the caller's clock
    objective_value: float = NAN
    levels: tuple[PlanLevel, ...] = ()  # in the order in which they were minimised
    cpu_s: float = NAN  # that the decision took
    wall_s: float = NAN
    planned_value: float = NAN  # the objective over all jobs, as the plan over time projects it; absent without one
    heuristic_values: tuple[HeuristicValue, ...] = ()  # the same for named heuristics; none is better
    chosen_because: str = ""  # which candidate became the plan over time
    work_units: float = NAN  # of the searches of the decision: columns, iterations, hosts and breakpoints visited
    stopped_by: str = ""  # what ended the search early: no time for a worker, too; empty where the work units did


@record
class Ranking:
    """The cost of one candidate device for one job, as per-pod schedulers need it. A lower cost is better."""

    device_id: str
    feasible: bool
    slowdown: float  # predicted, of the job; 1 on an empty device
    worst_resident_slowdown: float
    cost: float = math.inf  # infinite where it is not feasible
    reason: str  # the rule in words; "allowed" where none forbids it
    rule: Rule | None = None  # what forbids it, or the promise that was made of it; None where it is just allowed
    planned: bool = False  # where a plan for this job alone on these devices would start it


@record
class RankQuery:
    """A request to rank the candidate devices of one job."""

    job: Job
    devices: tuple[Device, ...]
    limits: Limits = field(default_factory=Limits)
    objective: ObjectiveKind = ObjectiveKind.AUTO
    scope: str = ""  # whose promises count; empty: none
    objective_name: str = ""  # as in a snapshot


@record
class RankAnswer:
    """Rankings of devices, the best first."""

    rankings: tuple[Ranking, ...]
    model_version: str


@record
class Contribution:
    """How much one fact of a job moves a predicted log slowdown, compared with a reference value of that fact.

    For a fact g of job j: log s(x) - log s(x with g of j at its reference). A positive change means that the fact slows
    the victim more than the reference would. The changes of several facts do not add up.
    """

    job_id: str  # the job whose fact it is; empty: a fact of the pair
    name: str
    log_change: float
    value: float = NAN  # in `unit`; NaN where the fact is no number
    reference: float = NAN
    unit: str = ""


@record
class PairExplanation:
    """The present prediction for one job beside its partner, and the contributions to it, largest first."""

    victim_id: str
    neighbour_id: str
    median: float
    lower: float
    upper: float
    source: Source
    note: str = ""  # what the numbers are based on
    contributions: tuple[Contribution, ...] = ()


@record
class Alternative:
    """An alternative action for the job. `cost`: objective of the best whole plan with this action, by current
    knowledge.

    Plans are compared by the weight of waiting jobs first, then by cost.
    """

    kind: ActionKind
    device_id: str = ""
    partner_id: str = ""
    partner_workload: str = ""
    slowdown: float = NAN  # predicted, of the job
    partner_slowdown: float = NAN
    group_cost: float = NAN  # of the job's own group in the objective
    cost: float  # of the whole plan
    waiting: int  # jobs that wait in that plan
    waiting_weight: float
    chosen: bool = False  # it is the action of the decision
    proven: bool = True  # no plan with it costs less: proved


@record
class Explanation:
    """The explanation of one job's action in one decision."""

    decision_id: str
    scope: str
    workload: str  # of the job
    action: Action
    pairs: tuple[PairExplanation, ...]  # the job beside its partner, then the partner beside the job
    alternatives: tuple[Alternative, ...]  # best first
    left_out: int  # further alternatives for which the time budget did not suffice
    refused: tuple[Refusal, ...]  # what it may not have, a few for each rule that binds; no partner: not even alone
    refused_total: int
    model_version: str  # that explains; that decided unless `changed` says otherwise
    changed: tuple[str, ...]  # what is known now and was not then


@record
class ExplainQuery:
    """Asks why a job got its action in a decision."""

    decision_id: str
    job_id: str
    scope: str = ""  # empty: the scope of the decision


@record
class RuleCount:
    """How many actions of a decision one rule led to."""

    kind: RuleKind
    count: int


@record
class DecisionSummary:
    """One decision in numbers."""

    decision_id: str
    snapshot_id: str = ""
    now_s: float = NAN  # on the caller's clock
    model_version: str = ""
    status: SolveStatus
    gap: float = NAN
    pending: int  # jobs of the request
    devices: int  # of the request
    started_alone: int
    started_shared: int
    waiting: int  # declined ones included
    displaced: int  # running jobs that are moved, stopped or ended
    waiting_rules: tuple[RuleCount, ...] = ()  # why jobs wait, the most frequent rule first
    planned_value: float = NAN
    cpu_s: float = NAN
    stopped_by: str = ""


@record
class DecisionList:
    """The newest decisions of a scope, newest first."""

    scope: str
    decisions: tuple[DecisionSummary, ...] = ()


@record
class DecisionQuery:
    """Selects decisions of a scope."""

    scope: str = "default"
    limit: int = 0  # 0: `DEFAULT_LISTED`
    before_id: str = ""  # only decisions made before this one


@record
class ScopeSummary:
    """A scope, and how many promises, deadlines and grants a server keeps for it."""

    scope: str
    now_s: float = 0.0  # on the caller's clock, at the last decision
    promises: int = 0
    accepted_deadlines: int = 0
    grants: int = 0  # of running jobs
    end_promises: int = 0


@record
class PlacedJob:
    """A job on a device."""

    job_id: str
    workload: str
    slowdown: float = NAN  # predicted beside the others; NaN where the decision names none
    planned: bool = False  # the newest decision starts it here or moves it here: it may not run here yet


@record
class ScopeDevice:
    """A device and the jobs on it, those included that the newest decision puts there."""

    device_id: str
    device_type: str
    node: str = ""
    jobs: tuple[PlacedJob, ...] = ()


@record
class WaitingJob:
    """A job that waits, and the rule that binds."""

    job_id: str
    workload: str
    rule: Rule | None = None
    reason: str = ""
    planned_start_s: float = NAN  # by the plan over time, on the caller's clock
    promised_end_s: float = NAN


@record
class ScopeQuery:
    """Selects a scope."""

    scope: str = ""  # empty: "default"


@record
class ScopeState:
    """A scope as its newest decision leaves it."""

    scope: str
    decision_id: str
    now_s: float = NAN  # on the caller's clock
    model_version: str = ""
    devices: tuple[ScopeDevice, ...] = ()
    waiting: tuple[WaitingJob, ...] = ()


@record
class ScopeList:
    """All scopes of a server, by name."""

    scopes: tuple[ScopeSummary, ...] = ()
