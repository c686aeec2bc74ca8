"""Decisions: each is made once per snapshot id; in a scope with a clock, its promises are stored together with it.

Law: a request is answered with the stored decision, or with a new one that is stored before it is sent. The grant
tables of a scope are read from the store at every call, so that servers on one database answer alike.
"""

import hashlib
import logging
import math
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from interfere.errors import ConflictError, UnavailableError
from interfere.policy.context import JobCatalogue, PlanningContext
from interfere.policy.decide import decide
from interfere.policy.ledger.grants import all_grants, granule_account
from interfere.policy.ledger.overuse import is_of_grant
from interfere.policy.rules.runtime import TICK_S
from interfere.protocols import Predictor
from interfere.records import (
    NAN,
    AcceptedDeadline,
    DeviceGrants,
    DeviceSlots,
    Grant,
    GrantLine,
    GrantTables,
    MemoryUsage,
    Outcome,
    OutcomeKind,
    Plan,
    ScopeLedger,
    Snapshot,
)
from interfere.serving.metrics import Metrics
from interfere.store.rows import StoredDecision
from interfere.store.sqlite import SqliteStore
from interfere.v1 import policy_pb2 as pb
from interfere.wire.converter import from_proto, to_proto

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

    def __init__(self, store: SqliteStore, metrics: Metrics, *, time_budget_s: float) -> None:
        """Make decisions. `time_budget_s` is the budget of snapshots without one. No budget exceeds
        `MAX_TIME_BUDGET_S`."""
        self._decisions, self._ledgers, self._metrics = store.decisions, store.ledgers, metrics
        self._observations = store.observations
        self._time_budget_s = time_budget_s

    def decide(self, snapshot: Snapshot, predictor: Predictor, catalogue: JobCatalogue) -> Plan:
        """Return the stored decision of the same snapshot, or make a new decision and store it under the snapshot's id,
        if any.

        Raises ConflictError where the id was used for another snapshot, UnavailableError where other servers keep
        writing the ledger of the scope.
        """
        digest = _digest(snapshot) if snapshot.snapshot_id else ""
        requested_s = snapshot.limits.timing.time_budget_s
        budget_s = self._time_budget_s if math.isnan(requested_s) else min(requested_s, MAX_TIME_BUDGET_S)
        snapshot = replace(snapshot, limits=snapshot.limits.within(time_budget_s=budget_s))
        for _ in range(MAX_TRIES):
            if stored_plan := self._stored_plan(snapshot, digest):
                return stored_plan
            context = PlanningContext(
                snapshot=snapshot,
                predictor=predictor,
                catalogue=catalogue,
                decision_id=secrets.token_hex(8),
                report_failed_checks=self._metrics.count_failed_checks,
            )
            if plan := self._decide_and_store(context, digest):
                return plan
        raise UnavailableError(
            "other servers write this scope all the time", value=snapshot.scope, remedy="retry; one at a time is best"
        )

    def _decide_and_store(self, context: PlanningContext, digest: str) -> Plan | None:
        """Make and store a new decision, and return its plan; None where another server wrote the ledger in the
        meantime.

        Without a clock no ledger is kept.
        """
        start_s, start_cpu_s = time.perf_counter(), time.thread_time()
        scope, has_clock = context.snapshot.scope, not math.isnan(context.now_s)
        ledger = self._ledgers.read(scope) if has_clock else ScopeLedger(scope=scope)
        decision = decide(context, ledger, self._usages)
        cpu_s, wall_s = time.thread_time() - start_cpu_s, time.perf_counter() - start_s
        decision = replace(decision, plan=replace(decision.plan, cpu_s=cpu_s, wall_s=wall_s))
        stored = _stored_decision(context.snapshot, digest, decision.plan)
        if has_clock and not self._ledgers.commit(decision.ledger, stored):
            return None
        if not has_clock and stored:
            self._decisions.put(stored)
        seconds = time.perf_counter() - start_s
        self._metrics.count_decision(decision.plan, seconds)
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
            granted = sum(granule_account(decision.ledger).taken.values())
            self._metrics.set_granules(scope, granted, sum(each.granules for each in slots) - granted)
        deadlines = decision.deadlines
        self._metrics.count_deadlines(len(deadlines.met), len(deadlines.broken), len(deadlines.unknown))
        return decision.plan

    def grants(self, scope: str) -> GrantTables:
        """Return the granules of each device, and the grants of each job and device, as of the scope's last decision
        with a clock."""
        ledger = self._ledgers.read(scope)
        account = granule_account(ledger)
        return GrantTables(
            scope=scope,
            now_s=ledger.now_s,
            devices=tuple(
                DeviceGrants(
                    device_id=slots.device_id,
                    device_type=slots.device_type,
                    granules=slots.granules,
                    granted=account.taken.get(slots.device_id, 0),
                    free=slots.granules - account.taken.get(slots.device_id, 0),
                    oversubscription_ratio=slots.oversubscription_ratio,
                    granule_bytes=slots.granule_bytes,
                )
                for slots in account.slots.values()
            ),
            grants=tuple(
                self._grant_line(grant, account.slots[device_id])
                for grant in all_grants(ledger)
                for device_id in grant.device_ids
                if device_id in account.slots
            ),
        )

    def _grant_line(self, grant: Grant, slots: DeviceSlots) -> GrantLine:
        """Return one grant on one of its devices, with the memory that its job was measured to use there."""
        windows = () if grant.planned else self._usages(grant)
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
        )

    def _usages(self, grant: Grant) -> Iterator[MemoryUsage]:
        """Return the job's memory windows since it was granted memory, those that end last first; at most
        `MAX_USAGES`."""
        if math.isnan(grant.since_s):
            return iter(())
        return islice(self._observations.memory_usages(grant.job_id, after_s=grant.since_s), MAX_USAGES)

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


def _digest(snapshot: Snapshot) -> str:
    """Return the SHA-256 of the snapshot's protobuf message."""
    return hashlib.sha256(to_proto(snapshot, pb.MatchRequest).SerializeToString(deterministic=True)).hexdigest()


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
