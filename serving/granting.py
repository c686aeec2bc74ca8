"""What a scope has granted, as its ledger and the log of memory usages say; no gRPC in it.

Law: read from the store every time, so that servers on one database tell the same.
"""

import math
from collections.abc import Iterator
from itertools import islice

from interfere.policy.ledger.grants import account_of, holdings
from interfere.policy.ledger.overuse import of_grant
from interfere.records import NAN, Grant, MemoryUsage, ScopeLedger
from interfere.store.protocols import ObservationRepository
from interfere.wire.messages import DeviceGrants, GrantLine, GrantTables

# Windows of one grant that a decision looks back on: a minute each (Prometheus' default scrape interval), 16 hours.
MOST_USAGES = 1_000


class UsageReader:
    """Memory usages of who holds a grant."""

    def __init__(self, book: ObservationRepository) -> None:
        self._book = book

    def of(self, grant: Grant) -> Iterator[MemoryUsage]:
        """Since it was granted, those that end last first."""
        if math.isnan(grant.since_s):
            return iter(())
        return islice(self._book.memory_usages(grant.job_id, after_s=grant.since_s), MOST_USAGES)


def tables(ledger: ScopeLedger, usages: UsageReader) -> GrantTables:
    """Both tables of a scope."""
    account = account_of(ledger)
    taken = {name: account.taken.get(name, 0) for name in account.slots}
    return GrantTables(
        scope=ledger.scope,
        now_s=ledger.now_s,
        devices=tuple(
            DeviceGrants(
                device_id=name,
                device_type=one.device_type,
                granules=one.granules,
                granted=taken[name],
                free=one.granules - taken[name],
                oversubscription_ratio=one.oversubscription_ratio,
                granule_bytes=one.granule_bytes,
            )
            for name, one in account.slots.items()
        ),
        grants=tuple(
            _line(grant, name, ledger, usages)
            for grant in holdings(ledger)
            for name in grant.device_ids
            if name in account.slots
        ),
    )


def _line(grant: Grant, device_id: str, ledger: ScopeLedger, usages: UsageReader) -> GrantLine:
    slots = next(one for one in ledger.slots if one.device_id == device_id)
    windows = () if grant.planned else usages.of(grant)
    used = [one.bytes for one in windows if of_grant(one, grant, device_id, slots.device_type)]
    return GrantLine(
        job_id=grant.job_id,
        device_id=device_id,
        granules=slots.needs(grant.bytes),
        bytes=grant.bytes,
        since_s=grant.since_s,
        planned=grant.planned,
        last_use_bytes=used[0] if used else NAN,
        times_exceeded=sum(size > grant.bytes for size in used),
    )
