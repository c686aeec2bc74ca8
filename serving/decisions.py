"""Decisions: checked, made once for each snapshot id, and stored with the promises of their scope.

Law: a request is answered with the stored decision, or with a new decision that is stored before it is sent. The grant
tables of a scope are read from the store at every call, so that servers on one database give the same answer.
"""

import logging
import math
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice

from interfere.errors import ConflictError, InvalidInputError, LimitError, UnavailableError, Violation
from interfere.policy.context import MAX_CLOSING_TIMES, PlanningContext
from interfere.policy.decide import decide
from interfere.policy.ledger.grants import all_grants, slot_account
from interfere.policy.ledger.overuse import is_of_grant
from interfere.policy.rules.custom import SharingRule
from interfere.policy.rules.runtime import TICK_S
from interfere.policy.site_policy import NO_ADDITIONS, SitePolicy
from interfere.policy.subproblems import independent_parts, problem_size
from interfere.policy.validate import jobs_where, validate_snapshot
from interfere.records import (
    NAN,
    AcceptedDeadline,
    DeviceGrants,
    DeviceSlots,
    Grant,
    GrantLine,
    GrantTables,
    Job,
    MemoryUsage,
    Outcome,
    OutcomeKind,
    Plan,
    ScopeLedger,
    Snapshot,
)
from interfere.records.limits import MIN_TIME_BUDGET_S
from interfere.serving.metrics import Metrics
from interfere.serving.profiles import ProfileCatalogue
from interfere.serving.state import ServedState
from interfere.store.rows import StoredDecision
from interfere.store.store import Store
from interfere.time_budget import check_interruption
from interfere.v1 import policy_pb2 as pb
from interfere.wire.converter import from_proto, to_proto

Reporters = Mapping[str, frozenset[str]]
"""The scopes for which each identity may report; none: every scope."""
# Windows of one grant that a decision looks back on: a minute each (Prometheus' default scrape interval), 16 hours.
MAX_USAGES = 1_000


_log = logging.getLogger(__name__)
# Tries to write a ledger that another server writes too. Each loss means that the other was served; of two servers that
# write without a pause each loses every second try, so this many in a row once in a million.
MAX_TRIES = 20
MAX_TIME_BUDGET_S = 30.0  # of any decision: other scopes wait for their turn meanwhile
_RELEASING_OUTCOMES = (OutcomeKind.LOST_RACE, OutcomeKind.REFUSED, OutcomeKind.ENDED)


class DecisionMaker:
    """Makes decisions, and stores each decision with the ledger that it leaves.

    Thread-safe. The caller has validated the snapshot, and lets one decision at a time into a scope, so that no
    decision is computed in vain. The revision of the ledger keeps threads and servers on one database from overwriting
    each other.
    """

    def __init__(
        self, store: Store, metrics: Metrics, *, time_budget_s: float, site_policy: SitePolicy = NO_ADDITIONS
    ) -> None:
        """Make decisions. `time_budget_s` is the budget of snapshots without one. No budget exceeds
        `MAX_TIME_BUDGET_S`. `site_policy`: objectives and rules of other packages."""
        self._decisions, self._ledgers, self._metrics = store.decisions, store.ledgers, metrics
        self._observations = store.observations
        self._time_budget_s, self.site_policy = time_budget_s, site_policy
        self.reporters: Callable[[], Reporters | None] = lambda: None
        """Whose memory windows may end a job; none: everybody's, as callers have no identity."""

    def decide(
        self,
        snapshot: Snapshot,
        digest: str,
        state: ServedState,
        *,
        greedy_because: str,
    ) -> Plan:
        """Return the stored decision of the same snapshot, or make a new decision from a state and store it under the
        snapshot's id, if any.

        `digest`: of the bytes of the snapshot.

        With `greedy_because` a new decision is the greedy plan, without a search, and the plan tells this reason.
        Raises ConflictError where the id was used for another snapshot, UnavailableError where other servers keep
        writing the ledger of the scope.
        """
        requested_s = snapshot.limits.timing.time_budget_s
        budget_s = self._time_budget_s if math.isnan(requested_s) else min(requested_s, MAX_TIME_BUDGET_S)
        if greedy_because:
            budget_s = MIN_TIME_BUDGET_S
        snapshot = replace(snapshot, limits=snapshot.limits.within(time_budget_s=budget_s))
        if stored_plan := self._stored_plan(snapshot, digest):
            return stored_plan
        with self._ledgers.claim(snapshot.scope, patience_s=budget_s):
            for _ in range(MAX_TRIES):
                if stored_plan := self._stored_plan(snapshot, digest):
                    return stored_plan
                context = state.context(
                    snapshot,
                    self.site_policy,
                    decision_id=secrets.token_hex(8),
                    report_failed_checks=self._metrics.count_failed_checks,
                )
                if plan := self._decide_and_store(context, digest, greedy_because):
                    return plan
        raise UnavailableError(
            "other servers write this scope all the time", value=snapshot.scope, remedy="retry; one at a time is best"
        )

    def _decide_and_store(self, context: PlanningContext, digest: str, greedy_because: str) -> Plan | None:
        """Make and store a new decision, and return its plan; None where another server wrote the ledger in the
        meantime.

        Without a clock no ledger is kept.
        """
        start_s, start_cpu_s = time.perf_counter(), time.thread_time()
        scope, has_clock = context.snapshot.scope, not math.isnan(context.now_s)
        ledger = self._ledgers.read(scope) if has_clock else ScopeLedger(scope=scope)
        decision = decide(context, ledger, partial(self._usages, reporters=self._reporters_of(scope)))
        cpu_s, wall_s = time.thread_time() - start_cpu_s, time.perf_counter() - start_s
        stopped_by = greedy_because or decision.plan.stopped_by
        decision = replace(decision, plan=replace(decision.plan, cpu_s=cpu_s, wall_s=wall_s, stopped_by=stopped_by))
        stored = _stored_decision(context.snapshot, digest, decision.plan)
        check_interruption()  # the ledger was read before the call was abandoned, or this raises
        if has_clock and not self._ledgers.commit(decision.ledger, stored):
            return None
        if not has_clock and stored:
            self._decisions.put(stored)
        seconds = time.perf_counter() - start_s
        self._metrics.count_decision(decision.plan, seconds)
        if greedy_because:
            self._metrics.add("interfere_greedy_decisions", 1)
        fields = {
            "decision_id": context.decision_id,
            "scope": scope,
            "pending": len(context.snapshot.pending),
            "devices": len(context.snapshot.devices),
            "seconds": round(seconds, 4),
            "gap": round(decision.plan.gap, 6),
            "model": context.predictor.version,
        }
        _log.debug("decided: %s", fields, extra={"fields": fields})
        if slots := decision.ledger.slots if has_clock else ():
            granted = sum(slot_account(decision.ledger).taken.values())
            self._metrics.set_granules(scope, granted, sum(each.granules for each in slots) - granted)
        deadlines = decision.deadlines
        self._metrics.count_deadlines(len(deadlines.met), len(deadlines.broken), len(deadlines.unknown))
        return decision.plan

    def grants(self, scope: str) -> GrantTables:
        """Return the granules of each device, and the grants of each job and device, as of the scope's last decision
        with a clock."""
        ledger, reporters = self._ledgers.read(scope), self._reporters_of(scope)
        account = slot_account(ledger)
        return GrantTables(
            scope=scope,
            now_s=ledger.now_s,
            devices=tuple(
                DeviceGrants(**asdict(slots), granted=granted, free=slots.granules - granted)
                for slots in account.slots.values()
                for granted in (account.taken.get(slots.device_id, 0),)
            ),
            grants=tuple(
                self._grant_line(grant, account.slots[device_id], reporters)
                for grant in all_grants(ledger)
                for device_id in grant.device_ids
                if device_id in account.slots
            ),
        )

    def _grant_line(self, grant: Grant, slots: DeviceSlots, reporters: Collection[str] | None) -> GrantLine:
        """Return one grant on one of its devices, with the memory that its job was measured to use there."""
        windows = () if grant.planned else self._usages(grant, reporters)
        used_bytes = [each.bytes for each in windows if is_of_grant(each, grant, slots.device_id, slots.device_type)]
        return GrantLine(
            job_id=grant.job_id,
            device_id=slots.device_id,
            granules=slots.needs(grant.bytes),
            bytes=grant.bytes,
            since_s=grant.since_s,
            planned=grant.planned,
            last_use_bytes=used_bytes[0] if used_bytes else NAN,
            times_exceeded=sum(size > grant.bytes for size in used_bytes),
            slots=tuple(each for each in grant.slots or () if each.device_id == slots.device_id),
        )

    def _reporters_of(self, scope: str) -> Collection[str] | None:
        """Return the names of those that may report for a scope; None where callers have no identity."""
        reporters = self.reporters()
        if reporters is None:
            return None
        return {name for name, scopes in reporters.items() if not scopes or scope in scopes}

    def _usages(self, grant: Grant, reporters: Collection[str] | None) -> Iterator[MemoryUsage]:
        """Return the memory windows of a job since its grant that one of `reporters` sent, or anybody for None.

        The window that ends last comes first; at most `MAX_USAGES`.
        """
        if math.isnan(grant.since_s):
            return iter(())
        windows = self._observations.memory_usages(grant.job_id, after_s=grant.since_s)
        return islice((each for each in windows if reporters is None or each.reporter in reporters), MAX_USAGES)

    def apply_outcome(self, outcome: Outcome) -> None:
        """Release the promise of an action that will not happen. An outcome without a decision id releases nothing.

        A start that did not happen withdraws no accepted deadline: the job still waits, and may still end in time. That
        of a job that has ended is kept where it ended by then, else broken.
        """
        if outcome.kind not in _RELEASING_OUTCOMES or not outcome.decision_id:
            return
        is_over = outcome.kind is OutcomeKind.ENDED
        released = self._ledgers.release_promises(outcome.job_id, outcome.decision_id, deadlines=is_over)
        deadlines = [record for record in released if isinstance(record, AcceptedDeadline)]
        kept = sum(outcome.at_s <= accepted.deadline_s + TICK_S for accepted in deadlines)
        self._metrics.count_deadlines(kept, len(deadlines) - kept, 0)

    def _stored_plan(self, snapshot: Snapshot, digest: str) -> Plan | None:
        """Return the plan stored under the snapshot's id; None where there is none.

        Raises ConflictError where the id was used for another snapshot.
        """
        if not snapshot.snapshot_id:
            return None
        stored = self._decisions.find(snapshot.scope, snapshot.snapshot_id)
        if stored is None:
            return None
        if stored.digest != digest:
            raise ConflictError(
                f"snapshot id {snapshot.snapshot_id!r} was decided for another content",
                value=f"scope {snapshot.scope!r}",
                remedy="give every new snapshot a new id; an id is for retries of the same bytes",
            )
        return from_proto(Plan, pb.MatchResponse.FromString(stored.content))


def _stored_decision(snapshot: Snapshot, digest: str, plan: Plan) -> StoredDecision | None:
    """Return the row to store for a decision; None for a snapshot without an id."""
    if not snapshot.snapshot_id:
        return None
    return StoredDecision(
        scope=snapshot.scope,
        snapshot_id=snapshot.snapshot_id,
        digest=digest,
        content=to_proto(plan, pb.MatchResponse).SerializeToString(),
    )


# --- what is refused before anything is computed ----------------------------------------------------------------------

# Costs of one Match: about 100 bytes each. 1,000 pending jobs that all differ beside 700 residents that do are 1.7
# million and take two seconds of one core; jobs that repeat 40 workloads at three weights are 14,400, however many.
MAX_COSTS = 2_000_000
MAX_DEVICES = 20_000
MAX_PENDING = 20_000


def check_snapshot(snapshot: Snapshot, profiles: ProfileCatalogue, site_policy: SitePolicy = NO_ADDITIONS) -> None:
    """Raise LimitError for a snapshot that is too large, InvalidInputError for one that contradicts itself, or names
    unknown profiles or an objective that is not enabled."""
    check_size(snapshot, site_policy.rules)
    bad = [
        Violation(field=name, what="must be printable and short", value=repr(value[:40]), remedy="≤ 256 characters")
        for name, value in (("scope", snapshot.scope), ("snapshot_id", snapshot.snapshot_id))
        if len(value) > 256 or not value.isprintable()
    ]
    bad += validate_snapshot(snapshot, site_policy.objective_of(snapshot))
    bad += _unknown_ids(jobs_where(lambda job: bool(job.profile_id), snapshot), profiles)
    if bad:
        raise InvalidInputError.from_violations(bad)


def check_job(job: Job, profiles: ProfileCatalogue) -> None:
    """Raise InvalidInputError for a job that names an unknown profile."""
    if bad := _unknown_ids([("job", job)], profiles):
        raise InvalidInputError.from_violations(bad)


def _unknown_ids(jobs: Iterable[tuple[str, Job]], profiles: ProfileCatalogue) -> list[Violation]:
    return [
        Violation(
            field=f"{path}.profile_id",
            what="no profile has this id",
            value=repr(job.profile_id),
            remedy="leave it out to use the workload's newest, or register the profile first",
        )
        for path, job in jobs
        if job.profile_id and not profiles.knows(job.profile_id)
    ]


def check_size(snapshot: Snapshot, custom_rules: Sequence[SharingRule] = ()) -> None:
    """Raise LimitError for a snapshot whose plan would take more memory and time than one request may."""
    jobs, devices = len(snapshot.pending), len(snapshot.devices)
    if jobs > MAX_PENDING or devices > MAX_DEVICES:
        raise LimitError(
            "too large a snapshot",
            value=f"{jobs} pending jobs on {devices} devices",
            remedy=f"send the first {MAX_PENDING:,} of the queue, and at most {MAX_DEVICES:,} devices a scope",
        )
    size = problem_size(snapshot, MAX_CLOSING_TIMES, custom_rules)
    if size.cells <= MAX_COSTS:
        return
    parts = independent_parts(snapshot)
    if sum(problem_size(part, MAX_CLOSING_TIMES, custom_rules).cells for part in parts) > MAX_COSTS:
        raise LimitError(
            "too many jobs that differ",
            value=f"{size.jobs} kinds of pending jobs, {size.seats} of residents, {size.device_classes} of devices",
            remedy=f"send a part of the queue: kinds of jobs² × kinds of devices + kinds of jobs × kinds of residents "
            f"may come to {MAX_COSTS:,}, added over pools that no job joins where every job names its pools; jobs of "
            f"one workload, weight and limits are one kind",
        )
