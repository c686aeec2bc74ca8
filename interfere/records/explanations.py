"""Explanations of a decision: what moves its predictions, and the alternatives with their costs."""

from dataclasses import dataclass

from interfere.records.checks import NAN
from interfere.records.limits import ActionKind
from interfere.records.plans import Action, Refusal
from interfere.records.predictions import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """How much one fact moves a predicted log slowdown, compared with a reference value of that fact.

    For a fact g of job j: log s(x) - log s(x with g of j at its reference). Positive: it slows the victim more than the
    reference would. Effects of facts do not add up.
    """

    job_id: str  # the job whose fact it is; empty: a fact of the pair
    name: str
    log_change: float
    value: float = NAN  # in `unit`; NaN where the fact is no number
    reference: float = NAN
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairExplanation:
    """One job beside its partner, as predicted now, and what moves this prediction, largest first."""

    victim_id: str
    neighbour_id: str
    median: float
    lower: float
    upper: float
    source: Source
    note: str = ""  # what the numbers are based on
    contributions: tuple[Contribution, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """An alternative action for the job. `cost`: objective of the best whole plan with it, by current knowledge.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why one job got its action in one decision."""

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
