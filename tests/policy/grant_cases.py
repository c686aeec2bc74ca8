"""Jobs, devices and a predictor for tests of memory grants: four workloads on devices that grant their memory."""

import math
from collections.abc import Iterable

from interfere.policy.answer.ranking import rank
from interfere.policy.decide import ScopeDecision, decide
from interfere.policy.ledger.grants import slot_account
from interfere.records import (
    ActionKind,
    Device,
    Job,
    Limits,
    MemoryUsage,
    ScopeLedger,
    Snapshot,
)
from tests.tables import DEVICE, TablePredictor, catalogue, context, plan, profile, resolver

GIB = 2.0**30
NAMES = tuple("abcd")
PREDICTOR = TablePredictor({(v, n): 1.1 for v in NAMES for n in NAMES})
PLAIN = resolver(*map(profile, NAMES))
EVERYTHING = Limits(allowed=frozenset(ActionKind))
ALONE, SHARED, WAIT, KEEP, END = (
    ActionKind.START_ALONE,
    ActionKind.START_SHARED,
    ActionKind.WAIT,
    ActionKind.KEEP,
    ActionKind.END,
)


def job(name: str, gib: float = math.nan, **given_: object) -> Job:
    return Job(id=name, workload=name[0], grant_bytes=gib * GIB, **given_)  # type: ignore[arg-type]


def device(name: str, *residents: Job, ratio: float = 1.0, granule_gib: float = 2.0, **given_: object) -> Device:
    return Device(
        id=name,
        type=DEVICE,
        memory_bytes=80 * GIB,
        residents=residents,
        oversubscription_ratio=ratio,
        granule_bytes=granule_gib * GIB,
        **given_,  # type: ignore[arg-type]
    )


def latest_first(windows: Iterable[MemoryUsage]) -> list[MemoryUsage]:
    """The windows in the order in which a store gives them."""
    return sorted(windows, key=lambda window: -window.end_s)


def decided(seen: Snapshot, ledger: ScopeLedger | None = None, resolve=PLAIN, usages=lambda _: ()) -> ScopeDecision:
    return decide(context(seen, PREDICTOR, resolve, "x"), ledger or ScopeLedger(scope="default"), usages)


def snapshot(pending: tuple[Job, ...], *devices: Device, now_s: float = 10.0, **given_: object) -> Snapshot:
    return Snapshot(pending=pending, devices=devices, now_s=now_s, **given_)  # type: ignore[arg-type]


def refused(one: Job, *devices: Device, resolve=PLAIN, **limits: float) -> str:
    """Why it may not start; the same of a plan and of a ranking."""
    (action,) = plan(
        context(Snapshot(pending=(one,), devices=devices, limits=Limits.of(**limits)), PREDICTOR, resolve, "d")
    ).actions
    (ranking,) = rank(one, devices, PREDICTOR, catalogue(resolve), Limits.of(**limits))
    assert ranking.feasible == (action.kind is not WAIT)
    return "" if ranking.feasible else ranking.reason


def free(found: ScopeDecision) -> dict[str, int]:
    account = slot_account(found.ledger)
    return {name: one.granules - account.taken.get(name, 0) for name, one in account.slots.items()}


def window(start_s: float, end_s: float, gib: float, name: str = "a") -> MemoryUsage:
    return MemoryUsage(
        observation_id="o",
        job_id=name,
        workload=name[0],
        device_type=DEVICE,
        bytes=gib * GIB,
        min_bytes=gib * GIB,
        start_s=start_s,
        end_s=end_s,
        device_id="",
    )
