"""Measured slowdowns: of a victim beside one neighbour, and beside a company of several jobs."""

from enum import StrEnum

from interfere.errors import Violation
from interfere.records.checks import (
    MAX_SLOWDOWN,
    METRICS,
    MIN_SLOWDOWN,
    NAN,
    check,
    is_name,
    refused,
    text_violations,
)
from interfere.records.record import record
from interfere.sharing_modes import SharingMode, set_sharing_mode

IMPORTANT_VICTIM, IMPORTANT_NEIGHBOUR = IMPORTANT = ("victim", "neighbour")


class PairStatus(StrEnum):
    """The result of a measurement. `unstable` and `infeasible` rows are kept and never imputed."""

    OK = "ok"
    UNSTABLE = "unstable"
    INFEASIBLE = "infeasible"


@record
class PairMeasurement:
    """Measured slowdown of one victim beside one neighbour. A self pair is one row with both sides in `passes`."""

    victim: str
    neighbour: str
    device_type: str
    mode: SharingMode
    metric: str = "step_time_mean"
    slowdown: float = NAN  # geometric mean over passes; NaN unless status is ok
    lower: float = NAN  # 95 % interval of the mean
    upper: float = NAN
    passes: tuple[float, ...] = ()  # slowdown in each block of each pass
    status: PairStatus = PairStatus.OK
    reason: str = ""
    overlap_frac: float = NAN  # share of the victim's window in which the neighbour ran
    steal_frac: float = NAN  # share of wall time that third processes took
    source: str = "user"
    campaign: str = ""
    device_name: str = ""  # the very machine: processor or card
    measured_at_s: float = NAN  # unix time
    important: str = ""  # the job with priority: IMPORTANT_VICTIM or IMPORTANT_NEIGHBOUR; empty: neither

    def __post_init__(self) -> None:
        bad = text_violations(self, "neighbour") + _measurement_violations(self)
        if self.important not in ("", *IMPORTANT):
            bad.append(
                refused(self, "important", "must say who had priority", f"one of {', '.join(IMPORTANT)}, or empty")
            )
        check(bad)

    @property
    def feasible(self) -> bool:
        """False only where the pair cannot share the device at all."""
        return self.status is not PairStatus.INFEASIBLE


MIN_COMPANY = 2  # jobs beside the victim: one alone makes a pair


@record
class GroupMeasurement:
    """The measured slowdown of one victim beside two or more neighbours on the same device.

    A group of k jobs has one row for each of its distinct workloads; each row's company are the other k - 1 jobs. Where
    a workload takes part several times, its one row holds the slowdowns of all its copies, block after block.

    >>> from interfere.records import GroupMeasurement
    >>> row = GroupMeasurement(victim="a", company=("a", "b"), device_type="v100", mode="mps", slowdown=2.5)
    >>> row.members, row.copies
    (('a', 'a', 'b'), 2)
    """

    victim: str
    company: tuple[str, ...]  # the other jobs, sorted, a workload as often as it runs beside the victim
    device_type: str
    mode: SharingMode
    metric: str = "step_time_mean"
    slowdown: float = NAN  # geometric mean over passes; NaN unless status is ok
    lower: float = NAN  # 95 % interval of the mean
    upper: float = NAN
    passes: tuple[float, ...] = ()  # slowdown of each copy of the victim in each block
    status: PairStatus = PairStatus.OK
    reason: str = ""
    overlap_frac: float = NAN  # share of the victim's window in which all of its company ran
    steal_frac: float = NAN  # share of wall time that third processes took
    source: str = "user"
    campaign: str = ""
    device_name: str = ""  # the very machine: processor or card
    measured_at_s: float = NAN  # unix time

    def __post_init__(self) -> None:
        check(_company_violations(self) + _measurement_violations(self))

    @property
    def members(self) -> tuple[str, ...]:
        """All jobs of the group, sorted. The rows of one group have equal members."""
        return tuple(sorted((self.victim, *self.company)))

    @property
    def copies(self) -> int:
        """The number of jobs in the group that run the victim's workload, the victim included."""
        return 1 + self.company.count(self.victim)

    @property
    def feasible(self) -> bool:
        """False only where the group cannot share the device at all."""
        return self.status is not PairStatus.INFEASIBLE


def _company_violations(row: GroupMeasurement) -> list[Violation]:
    """Return the violations of a company, which must be a sorted tuple of two or more names."""
    bad = []
    if len(row.company) < MIN_COMPANY:
        what = f"must hold at least {MIN_COMPANY} jobs"
        bad.append(refused(row, "company", what, "a victim with one neighbour is a pair"))
    if not all(map(is_name, row.company)):
        return [*bad, refused(row, "company", "must hold printable names", "1-256 characters")]
    if list(row.company) != sorted(row.company):
        bad.append(refused(row, "company", "must be sorted", "sort the names"))
    return bad


def _measurement_violations(row: PairMeasurement | GroupMeasurement) -> list[Violation]:
    """Return the violations of a measured slowdown that do not depend on the victim's neighbours."""
    bad = text_violations(row, "victim", "device_type", "source") + set_sharing_mode(row)
    if row.metric not in METRICS:
        bad.append(refused(row, "metric", "unknown metric", f"one of {', '.join(METRICS)}"))
    if row.status is PairStatus.OK and not MIN_SLOWDOWN <= row.slowdown <= MAX_SLOWDOWN:
        what = f"must lie in [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}] when status is ok"
        bad.append(refused(row, "slowdown", what, "mark the row unstable or infeasible with its reason"))
    if row.status is not PairStatus.OK and not row.reason:
        bad.append(refused(row, "reason", "a row that is not ok needs its reason", "say why"))
    return bad
