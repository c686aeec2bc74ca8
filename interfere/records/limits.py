"""The limits of a plan: its objective, its bounds on slowdown, memory and time, and the actions that it may contain."""

import math
from dataclasses import replace
from enum import StrEnum
from operator import attrgetter
from typing import Any

from interfere.errors import InvalidInputError, Violation
from interfere.records.checks import MIN_WEIGHT, NAN, check, number_violations, refused
from interfere.records.record import fields_of, groups_of, in_place, record
from interfere.sharing_modes import SharingMode, known_modes

# Two jobs that take turns get the work of one done: at a joint throughput of 1 sharing gains nothing, and above that it
# keeps the seat from a better partner that arrives later. On streams of jobs 1.15 is better than 1 and 1.3.
DEFAULT_MIN_JOINT_THROUGHPUT = 1.15
DEFAULT_RESIDENT_CAP = 1.5  # a job that runs keeps two thirds of its speed
DEFAULT_RISK = 0.05  # the interval of every prediction ends at the 5 % and 95 % quantiles
DEFAULT_PROBE_CAP = 2.0  # slower than that, a job had better run after the other
DEFAULT_PROBE_RISK = (
    0.25  # an assumption: of a pair unlike all others only the middle half of the interval is worth much
)
MAX_HEADROOM = 0.99  # share of a device's memory; a share of 1 would forbid every pair
MIN_TIME_BUDGET_S = 0.001  # in less time not even the costs can be computed
MIN_RISK, MAX_RISK = 0.001, 0.5  # smaller risks cannot be calibrated on the rows there are; at 0.5 the median decides
# Two of Slurm's main scheduling cycles (sched_interval, 60 s by default; slurm.conf, SchedulerParameters): a scheduler
# that has not started a job by then has decided otherwise.
DEFAULT_PROMISE_TTL_S = 120.0
MIN_SLICE_S = 1e-3  # shorter than any decision takes
DEFAULT_AGEING_S = 0.0  # waiting does not count: promised ends bound it, and on streams ageing makes all jobs later
# Two of Prometheus' default scrape intervals (scrape_interval, 1 m): a job above its grant for that long was measured
# so in at least two windows.
DEFAULT_GRANT_PATIENCE_S = 120.0


class ObjectiveKind(StrEnum):
    """The objective that a decision minimises after it has started the largest possible weight.

    `interfere.policy.costs.objectives` defines each objective.
    """

    AUTO = "auto"  # a plan over time where remaining times are known, else weighted excess at this moment
    WEIGHTED_EXCESS = "weighted_excess"
    TOTAL_SLOWDOWN = "total_slowdown"
    COMPLETION_TIME = "completion_time"
    MAKESPAN = "makespan"
    FINISH_TIME_FAIRNESS = "finish_time_fairness"
    PAIRS_PAST_CAP = "pairs_past_cap"
    DEADLINE_MISSES = "deadline_misses"
    COST = "cost"
    ENERGY = "energy"


@record
class ObjectiveTerm:
    """One part of a weighted sum of objectives."""

    kind: ObjectiveKind
    weight: float = 1.0

    def __post_init__(self) -> None:
        check(number_violations(self, "weight", low=MIN_WEIGHT, nan=False))


class ActionKind(StrEnum):
    """The kinds of actions that a plan may ask a scheduler to take.

    >>> from interfere import ActionKind
    >>> [kind.value for kind in ActionKind][:3]
    ['start_alone', 'start_shared', 'wait']
    """

    START_ALONE = "start_alone"
    START_SHARED = "start_shared"
    WAIT = "wait"
    KEEP = "keep"
    MOVE = "move"
    PREEMPT = "preempt"
    END = "end"
    DEMOTE = "demote"
    DECLINE = "decline"


DEFAULT_ALLOWED = frozenset({ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.WAIT})
# A move must be worth twice what it costs: remaining times are estimates, and a mover that ends after half of its own
# has then lost nothing.
DEFAULT_MOVE_FACTOR = 2.0


@record
class SlowdownLimits:
    """Limits on how far jobs may be slowed down. A cap applies to the quantile 1 - risk of the predicted slowdown."""

    max_slowdown: float = NAN  # cap for every job; the tighter of this and the job's own holds
    protected_slowdown: float = NAN  # cap that a job holds against partners of lower priority
    min_joint_throughput: float = DEFAULT_MIN_JOINT_THROUGHPUT  # a pair shares only above 1/s + 1/s'; 0: any pair may
    soft_cap: float = NAN  # the slowdown that the objective pairs_past_cap keeps pairs below; it forbids nothing
    # A plan over time slows no running job past this while a device that can take the newcomer is idle.
    resident_cap: float = DEFAULT_RESIDENT_CAP
    risk: float = DEFAULT_RISK  # probability with which a slowdown may pass its cap

    def __post_init__(self) -> None:
        bad = number_violations(self, "max_slowdown", "protected_slowdown", "soft_cap", low=1.0)
        bad += number_violations(self, "min_joint_throughput", nan=False)
        bad += number_violations(self, "resident_cap", low=1.0, nan=False)
        if not MIN_RISK <= self.risk <= MAX_RISK:
            bad.append(risk_violation(self))
        check(bad)


@record
class ProbeLimits:
    """Limits on probes: starts beside a job that the model abstains from, for what the run teaches about the pair.

    They take the place of the limits on slowdowns, for a pair without a prediction that these could bound.
    """

    probe_devices: int = 0  # on which probes may run at a time; 0: a job whose pairs are unknown waits
    probe_cap: float = DEFAULT_PROBE_CAP  # on the slowdown of either job, extrapolated; the tighter of all caps holds
    probe_risk: float = DEFAULT_PROBE_RISK  # probability with which a slowdown of a probe may pass a cap

    def __post_init__(self) -> None:
        bad = number_violations(self, "probe_cap", low=1.0, nan=False)
        if self.probe_devices < 0:
            bad.append(refused(self, "probe_devices", "must be ≥ 0", "leave it out for no probes"))
        if not MIN_RISK <= self.probe_risk <= MAX_RISK:
            remedy = f"leave it out for {DEFAULT_PROBE_RISK}"
            bad.append(refused(self, "probe_risk", f"must be in [{MIN_RISK}, {MAX_RISK}]", remedy))
        check(bad)


@record
class MemoryLimits:
    """Limits on the use of device memory, and the rule for ending a job that exceeds its grant."""

    memory_headroom: float = 0.0  # share of a device's memory that two jobs must leave free
    misfit_risk: float = NAN  # largest predicted probability that two jobs do not fit; absent: sums alone decide
    grant_patience_s: float = DEFAULT_GRANT_PATIENCE_S  # a job above its grant for this long without a dip may be ended
    grant_tolerance: float = 0.05  # share of its grant that a job may use beyond it

    def __post_init__(self) -> None:
        bad = _share_violations(self, "memory_headroom", MAX_HEADROOM)
        bad += [] if math.isnan(self.misfit_risk) else _share_violations(self, "misfit_risk", 1.0)
        bad += number_violations(self, "grant_patience_s", "grant_tolerance", nan=False)
        check(bad)


@record
class TimeLimits:
    """The time budget of a search, the life of a promise, the time between decisions, and the weight of waiting
    time."""

    time_budget_s: float = NAN  # for the search; past it the best plan so far is answered as BOUNDED
    promise_ttl_s: float = DEFAULT_PROMISE_TTL_S  # how long a planned start keeps its place, on the caller's clock
    slice_s: float = NAN  # decide anew at least this often
    ageing_s: float = DEFAULT_AGEING_S  # a job counts once more for each, from the third that it waits; 0: never

    def __post_init__(self) -> None:
        bad = number_violations(self, "time_budget_s", low=MIN_TIME_BUDGET_S)
        bad += number_violations(self, "promise_ttl_s", "ageing_s", nan=False)
        bad += number_violations(self, "slice_s", low=MIN_SLICE_S)
        check(bad)


@record
class Limits:
    """The actions that a plan may take, and their limits. `Limits.of(max_slowdown=1.5)` sets any limit by its own name.

    >>> from interfere import ActionKind, Limits
    >>> allowed = frozenset({ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.WAIT, ActionKind.MOVE})
    >>> limits = Limits.of(allowed=allowed, max_slowdown=1.5, time_budget_s=2.0)
    >>> limits.slowdown.max_slowdown, limits.timing.time_budget_s
    (1.5, 2.0)
    """

    allowed: frozenset[ActionKind] = DEFAULT_ALLOWED
    max_devices: int | None = None  # empty devices that may be taken
    most_shared_gpus: int | None = None  # jobs on more devices than this run without co-located jobs
    allow_extrapolation: bool = False
    choosable_modes: frozenset[SharingMode] = frozenset()  # that a plan may set on empty devices
    guest_ends_first: bool = False  # may a job join a resident only where it is expected to end no later?
    promise_deadlines: bool = True  # accept deadlines, and start no job that would break one
    rematch_running: bool = False  # with `move`: residents and pending jobs are re-paired as one assignment
    move_factor: float = DEFAULT_MOVE_FACTOR  # a move must save more than this times what it costs
    slowdown: SlowdownLimits = in_place(SlowdownLimits)
    probe: ProbeLimits = in_place(ProbeLimits)
    memory: MemoryLimits = in_place(MemoryLimits)
    timing: TimeLimits = in_place(TimeLimits)

    def __post_init__(self) -> None:
        bad = number_violations(self, "move_factor", low=1.0, nan=False)
        for name, low in (("max_devices", 0), ("most_shared_gpus", 1)):
            value = getattr(self, name)
            if value is not None and value < low:
                bad.append(refused(self, name, f"must be ≥ {low}", "leave it out for no limit"))
        modes, unknown = known_modes(self.choosable_modes, "choosable_modes")
        bad += unknown
        object.__setattr__(self, "choosable_modes", modes)
        if ActionKind.WAIT not in self.allowed:
            value, remedy = ", ".join(sorted(self.allowed)) or "nothing", "add wait: a job that fits nowhere has to"
            bad.append(refused(self, "allowed", "wait cannot be forbidden", remedy, value=value))
        check(bad)

    @classmethod
    def of(cls, **values: Any) -> "Limits":
        """Return limits from flat names, as they are on the wire and in JSON.

        Raises InvalidInputError with every broken rule, and TypeError for a limit that does not exist.
        """
        violations: list[Violation] = []
        grouped: dict[str, Any] = {}
        for name, group in groups_of(cls).items():
            given = {limit.name: values.pop(limit.name) for limit in fields_of(group) if limit.name in values}
            try:
                grouped[name] = group(**given)
            except InvalidInputError as error:
                violations += error.violations
        try:
            limits = cls(**values)
        except InvalidInputError as error:
            violations += error.violations
        check(violations)
        return replace(limits, **grouped)

    def flat(self) -> dict[str, Any]:
        """Return all limits by name. `Limits.of(**limits.flat())` gives the limits back."""
        return {limit.name: attrgetter(limit.path)(self) for limit in fields_of(type(self))}

    def within(self, *, time_budget_s: float) -> "Limits":
        """Return the same limits with another time budget for the search."""
        return replace(self, timing=replace(self.timing, time_budget_s=time_budget_s))


def risk_violation(record: object) -> Violation:
    """Return the violation of a record whose field `risk` is out of bounds."""
    return refused(record, "risk", f"must be in [{MIN_RISK}, {MAX_RISK}]", f"leave it out for {DEFAULT_RISK}")


def _share_violations(limits: MemoryLimits, name: str, high: float) -> list[Violation]:
    is_share = 0 <= getattr(limits, name) <= high
    return [] if is_share else [refused(limits, name, f"must be in [0, {high:g}]", "leave it out for none")]
