"""Decisions: made once per snapshot id, and in a scope with a clock together with the promises that they are.

Law: a request is answered by the stored decision, or by a new one that is stored before it is told.
"""

import hashlib
import math
import secrets
import time
from dataclasses import replace

from interfere.errors import ConflictError, InvalidInputError, UnavailableError
from interfere.policy.context import JobCatalogue, PlanningContext
from interfere.policy.decide import decide, validate_time
from interfere.policy.ledger.grants import account_of, held_by, with_held
from interfere.protocols import Predictor
from interfere.records import Outcome, OutcomeKind, Plan, Promise, ScopeLedger, Snapshot
from interfere.store.protocols import Store, StoredDecision
from interfere.v1 import policy_pb2 as pb
from interfere.wire.cluster import snapshot_to_proto
from interfere.wire.messages import GrantTables
from interfere.wire.plans import plan_from_proto, plan_to_proto
from serving.granting import UsageReader, tables
from serving.metrics import Metrics

# To write a ledger that another server writes too: each loss means that the other was served, and of two that write
# without a pause each loses every second try, so this many in a row once in a million.
MOST_TRIES = 20
_OVER = (OutcomeKind.LOST_RACE, OutcomeKind.REFUSED, OutcomeKind.ENDED)  # after these nothing is promised any more


class DecisionLedger:
    """Not thread-safe: the caller holds one lock, and has checked the snapshot.

    The ledger's revision keeps servers on one database apart.
    """

    def __init__(self, store: Store, metrics: Metrics, *, time_budget_s: float) -> None:
        """`time_budget_s` is for snapshots that name none: others wait while one is searched."""
        self._decisions, self._ledgers, self._metrics = store.decisions, store.ledgers, metrics
        self._usages = UsageReader(store.observations)
        self._time_budget_s = time_budget_s

    def check(self, snapshot: Snapshot) -> None:
        """Raise InvalidInputError where the scope's clock goes back."""
        if bad := validate_time(snapshot, self._ledgers.read(snapshot.scope)):
            raise InvalidInputError.from_violations(bad)

    def decide(self, snapshot: Snapshot, predictor: Predictor, catalogue: JobCatalogue) -> Plan:
        """The stored decision of this very snapshot, else a new one, stored under its id when it has one."""
        digest = _digest(snapshot) if snapshot.snapshot_id else ""
        if math.isnan(snapshot.limits.timing.time_budget_s):
            snapshot = replace(snapshot, limits=snapshot.limits.within(time_budget_s=self._time_budget_s))
        for _ in range(MOST_TRIES):
            if told := self._told(snapshot, digest):
                return told
            start_s = time.perf_counter()
            decision_id = secrets.token_hex(8)
            timeless = math.isnan(snapshot.now_s)
            ledger = ScopeLedger(scope=snapshot.scope) if timeless else self._ledgers.read(snapshot.scope)
            context = PlanningContext(
                snapshot=snapshot, predictor=predictor, catalogue=catalogue, decision_id=decision_id
            )
            decided = decide(context, ledger, self._usages.of)
            decision, stored = decided.plan, _stored(snapshot, digest, decided.plan)
            if timeless and stored:
                self._decisions.put(stored)
            if timeless or self._ledgers.commit(decided.ledger, stored):
                self._metrics.count_decision(decision, time.perf_counter() - start_s)
                if not timeless:
                    self._tell(decided.ledger)
                self._metrics.count_deadlines(len(decided.deadlines.kept), len(decided.deadlines.broken))
                return decision
        raise UnavailableError(
            "other servers write this scope all the time", value=snapshot.scope, remedy="retry; one at a time is best"
        )

    def promised(self, scope: str) -> tuple[Promise, ...]:
        """What is promised in a scope, as of its last decision."""
        return self._ledgers.read(scope).promises

    def with_held(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot in which who runs asks for what its scope has granted it."""
        return with_held(snapshot, held_by(self._ledgers.read(snapshot.scope)))

    def grants(self, scope: str) -> GrantTables:
        """Who holds how much memory in a scope, as of its last decision with a clock."""
        return tables(self._ledgers.read(scope), self._usages)

    def _tell(self, ledger: ScopeLedger) -> None:
        if ledger.slots:
            account = account_of(ledger)
            granted = sum(account.taken.values())
            self._metrics.set_granules(ledger.scope, granted, sum(one.granules for one in ledger.slots) - granted)

    def heard(self, outcome: Outcome) -> None:
        """A start that will not happen keeps no place. An outcome that names no decision is about none of them."""
        if outcome.kind in _OVER and outcome.decision_id:
            self._ledgers.release_promises(outcome.job_id, outcome.decision_id)

    def _told(self, snapshot: Snapshot, digest: str) -> Plan | None:
        """Raises ConflictError where the id was used for another snapshot."""
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
        return plan_from_proto(pb.MatchResponse.FromString(stored.content))


def _digest(snapshot: Snapshot) -> str:
    return hashlib.sha256(snapshot_to_proto(snapshot).SerializeToString(deterministic=True)).hexdigest()


def _stored(snapshot: Snapshot, digest: str, decision: Plan) -> StoredDecision | None:
    if not snapshot.snapshot_id:
        return None
    return StoredDecision(
        scope=snapshot.scope,
        snapshot_id=snapshot.snapshot_id,
        digest=digest,
        content=plan_to_proto(decision).SerializeToString(),
    )
