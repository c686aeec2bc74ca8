"""The grant tables of a scope, from its ledger and the log of memory usages; nothing of gRPC in it.

Law: everything is read from the store at every call, so that servers on one database answer alike.
"""

import math
from collections.abc import Iterator
from itertools import islice

from interfere.policy.ledger.grants import all_grants, granule_account
from interfere.policy.ledger.overuse import is_of_grant
from interfere.records import NAN, DeviceSlots, Grant, MemoryUsage, ScopeLedger
from interfere.store.protocols import ObservationRepository
from interfere.wire.messages import DeviceGrants, GrantLine, GrantTables

# Windows of one grant that a decision looks back on: a minute each (Prometheus' default scrape interval), 16 hours.
MAX_USAGES = 1_000


class UsageReader:
    """Reads the measured memory usage of jobs that hold a grant."""

    def __init__(self, observations: ObservationRepository) -> None:
        self._observations = observations

    def of(self, grant: Grant) -> Iterator[MemoryUsage]:
        """The job's windows since it was granted memory, those that end last first; at most `MAX_USAGES`."""
        if math.isnan(grant.since_s):
            return iter(())
        return islice(self._observations.memory_usages(grant.job_id, after_s=grant.since_s), MAX_USAGES)


def grant_tables(ledger: ScopeLedger, usages: UsageReader) -> GrantTables:
    """Granules by device, and grants by job and device, as of the scope's last decision."""
    account = granule_account(ledger)
    return GrantTables(
        scope=ledger.scope,
        now_s=ledger.now_s,
        devices=tuple(_device_grants(slots, account.taken.get(slots.device_id, 0)) for slots in account.slots.values()),
        grants=tuple(
            _grant_line(grant, account.slots[device_id], usages)
            for grant in all_grants(ledger)
            for device_id in grant.device_ids
            if device_id in account.slots
        ),
    )


def _device_grants(slots: DeviceSlots, granted: int) -> DeviceGrants:
    return DeviceGrants(
        device_id=slots.device_id,
        device_type=slots.device_type,
        granules=slots.granules,
        granted=granted,
        free=slots.granules - granted,
        oversubscription_ratio=slots.oversubscription_ratio,
        granule_bytes=slots.granule_bytes,
    )


def _grant_line(grant: Grant, slots: DeviceSlots, usages: UsageReader) -> GrantLine:
    """One grant on one of its devices, with what its job was measured to use there."""
    windows = () if grant.planned else usages.of(grant)
    used_bytes = [window.bytes for window in windows if is_of_grant(window, grant, slots.device_id, slots.device_type)]
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
