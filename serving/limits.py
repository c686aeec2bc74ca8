"""Size limits of one request, so that other requests need not wait long."""

import bisect

from interfere.errors import LimitError
from interfere.records import Snapshot

MAX_PAIRS = 20_000  # of one PredictSlowdowns: less than a second of one core even for trees
MAX_CELLS = 7_000_000  # of one PredictMatrix: 9 bytes each stay under 64 MiB
# Possible pairs of one Match, while other requests wait: 1,000 jobs on 600 free devices are 900,000 and take 0.1 s of
# one core where jobs repeat workloads (make bench), over a second where all differ.
MAX_POSSIBLE_PAIRS = 1_000_000
MAX_DEVICES = 4_000
MAX_ENTRIES = 1_000  # of one page of the log


def check_size(snapshot: Snapshot) -> None:
    """Raise LimitError for a snapshot that the matching cannot solve in a few seconds."""
    free = sum(not device.residents for device in snapshot.devices)
    seats = sum(len(device.residents) == 1 for device in snapshot.devices)

    def possible_pairs(pending: int) -> int:
        return pending * (pending - 1) // 2 + pending * seats + pending * max(0, pending - free)

    n, devices = len(snapshot.pending), len(snapshot.devices)
    if devices <= MAX_DEVICES and possible_pairs(n) <= MAX_POSSIBLE_PAIRS:
        return
    fits = bisect.bisect_right(range(n + 1), MAX_POSSIBLE_PAIRS, key=possible_pairs) - 1
    raise LimitError(
        "too large a snapshot",
        value=f"{n} pending jobs on {devices} devices, {possible_pairs(n):,} possible pairs",
        remedy=f"send the first {fits} of the queue, and at most {MAX_DEVICES} devices a scope",
    )
