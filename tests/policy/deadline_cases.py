"""Jobs, devices and a predictor for tests of deadlines: two workloads, two device types, one clock."""

import math

from interfere.policy.decide import decide
from interfere.records import (
    ActionKind,
    Device,
    Job,
    JobProfile,
    Limits,
    ObjectiveKind,
    Plan,
    ScopeLedger,
    Snapshot,
)
from tests.tables import DEVICE, TablePredictor, context, profile, resolver

NOW_S = 1000.0
MOMENT = {"objective": ObjectiveKind.WEIGHTED_EXCESS}  # the rules of deadlines at one moment
HOUR_S = 3600.0
SLOW = "slow"  # takes twice as long
TABLE = {("a", "a"): 1.4, ("a", "b"): 1.4, ("b", "a"): 2.0, ("b", "b"): 2.0}
PREDICTOR = TablePredictor(TABLE, spread=1.5, devices=(DEVICE, SLOW))
KNOWN = resolver(
    *(profile(name) for name in "ab"),
    *(JobProfile(workload=name, device_type=SLOW, step_time_s=0.02) for name in "ab"),
)
ALL = frozenset(ActionKind)


def job(name: str, left_s: float = math.nan, remaining_s: float = 100.0, **fields: object) -> Job:
    """One whose deadline is `left_s` from now."""
    return Job(**{"id": name, "workload": "a", "remaining_s": remaining_s, "deadline_s": NOW_S + left_s} | fields)


def decided(pending: tuple[Job, ...], devices: tuple[Device, ...], **fields: object) -> Plan:
    limits = fields.pop("limits", Limits())
    snapshot = Snapshot(
        pending=pending,
        devices=devices,
        now_s=NOW_S,
        limits=limits,
        **{"objective": ObjectiveKind.WEIGHTED_EXCESS} | fields,
    )
    return decide(context(snapshot, PREDICTOR, KNOWN, "d"), ScopeLedger(scope="default")).plan


def device(*residents: Job, name: str = "d", **fields: object) -> Device:
    return Device(**{"id": name, "type": DEVICE, "residents": residents} | fields)
