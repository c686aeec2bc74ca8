"""How much one request may ask, so that the others need not wait long."""

import bisect

from interfere.errors import LimitError
from interfere.records import Snapshot

MAX_PAIRS = 20_000  # of one PredictSlowdowns: less than a second of one core even for trees
MAX_CELLS = 7_000_000  # of one PredictMatrix: 9 bytes each stay under 64 MiB
# Of one Match, in pairs that the matching weighs while other requests wait: 1,000 jobs on 600 free devices are 900,000
# and take 0.1 s of one core where jobs repeat workloads (make bench: 1,000 on 1,000), over a second where all differ.
MAX_CHOICES = 1_000_000
MAX_DEVICES = 4_000
MAX_ENTRIES = 1_000  # of one page of the log


def check_size(snapshot: Snapshot) -> None:
    """Raise LimitError for more than the matching can weigh in a few seconds."""
    free = sum(not device.residents for device in snapshot.devices)
    seats = sum(len(device.residents) == 1 for device in snapshot.devices)

    def choices(pending: int) -> int:
        return pending * (pending - 1) // 2 + pending * seats + pending * max(0, pending - free)

    n, devices = len(snapshot.pending), len(snapshot.devices)
    if devices <= MAX_DEVICES and choices(n) <= MAX_CHOICES:
        return
    fits = bisect.bisect_right(range(n + 1), MAX_CHOICES, key=choices) - 1
    raise LimitError(
        "too large a snapshot",
        value=f"{n} pending jobs on {devices} devices, {choices(n):,} possible pairs",
        remedy=f"send the first {fits} of the queue, and at most {MAX_DEVICES} devices a scope",
    )
