"""Size limits of one request, so that other requests need not wait long."""

from interfere.errors import LimitError
from interfere.policy.context import MAX_CLOSING_TIMES
from interfere.policy.independent_pools import independent_parts
from interfere.policy.problem_size import problem_size
from interfere.records import Snapshot

MAX_PAIRS = 20_000  # of one PredictSlowdowns: less than a second of one core even for trees
MAX_CELLS = 7_000_000  # of one PredictMatrix: 9 bytes each stay under 64 MiB
# Costs of one Match: about 100 bytes each. 1,000 pending jobs that all differ beside 700 residents that do are 1.7
# million and take two seconds of one core; jobs that repeat 40 workloads at three weights are 14,400, however many.
MAX_COSTS = 2_000_000
MAX_DEVICES = 20_000
MAX_PENDING = 20_000
MAX_ENTRIES = 1_000  # of one page of the log


def check_size(snapshot: Snapshot) -> None:
    """Raise LimitError for a snapshot whose plan would take more memory and time than one request may."""
    jobs, devices = len(snapshot.pending), len(snapshot.devices)
    if jobs > MAX_PENDING or devices > MAX_DEVICES:
        raise LimitError(
            "too large a snapshot",
            value=f"{jobs} pending jobs on {devices} devices",
            remedy=f"send the first {MAX_PENDING:,} of the queue, and at most {MAX_DEVICES:,} devices a scope",
        )
    size = problem_size(snapshot, MAX_CLOSING_TIMES)
    if size.cells <= MAX_COSTS:
        return
    if sum(problem_size(part, MAX_CLOSING_TIMES).cells for part in independent_parts(snapshot)) > MAX_COSTS:
        raise LimitError(
            "too many jobs that differ",
            value=f"{size.jobs} kinds of pending jobs, {size.seats} of residents, {size.device_classes} of devices",
            remedy=f"send a part of the queue: kinds of jobs² × kinds of devices + kinds of jobs × kinds of residents "
            f"may come to {MAX_COSTS:,}, added over pools that no job joins where every job names its pools; jobs of "
            f"one workload, weight and limits are one kind",
        )
