"""Every scheduler as a record: the order of its queue, its backfill, how it shares. Each works for every world.

`PRESETS` names every record of two seats; the name of a record is its label in reports. A record of a queue starts jobs
in an order, and what does not start at once may be offered to running jobs; `slots` admits deadlines by slots; the
`policy` queues let the server decide everything: by slowdowns, by deadlines that it promises, or by deadlines that it
does not promise.
Law: what a scheduler that shares is compared with has the same order, estimates and rights to preempt and drop.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from itertools import product

from interfere.errors import InvalidInputError
from interfere.extensions import ExtensionKind, extensions, find_extension, is_reference
from interfere.records.cluster import DEFAULT_SEATS, MAX_SEATS
from interfere.sim.schedulers.queue import Backfill


class Queue(StrEnum):
    """The order of waiting jobs, or the planner that decides in place of an order."""

    FIFO = "fifo"
    SJF = "sjf"  # by the true duration
    QSSF = "qssf"  # by an estimate from history, times the devices
    TIRESIAS = "tiresias"  # by attained service; stops running jobs
    SRTF = "srtf"  # by what is left of the true duration; stops running jobs
    EDF = "edf"  # by deadline
    SLOTS = "slots"  # deadlines are promised where all promised jobs can be laid out in slots
    POLICY = "policy"  # the server, by slowdowns
    POLICY_DEADLINES = "policy-deadlines"  # the server, by deadlines that it promises
    POLICY_NO_PROMISES = "policy-no-promises"  # the server, by deadlines that it does not promise


class Sharing(StrEnum):
    """How the jobs that share a device are chosen."""

    NONE = ""
    GREEDY = "greedy"  # each job in order joins the cheapest host
    MATCHING = "matching"  # the server's decision


SERVER_DECIDES = (Queue.POLICY, Queue.POLICY_DEADLINES, Queue.POLICY_NO_PROMISES)
ORDERS = tuple(queue for queue in Queue if queue not in (Queue.SLOTS, *SERVER_DECIDES))
PREEMPTIVE = (Queue.TIRESIAS, Queue.SRTF)  # orders whose schedulers stop running jobs
REMATCHED = (Queue.FIFO, Queue.SJF, Queue.QSSF, Queue.TIRESIAS, Queue.SRTF)  # whose running jobs can be re-paired
ORACLES = (Queue.SJF, Queue.SRTF, Queue.SLOTS)  # know how long jobs will run, as no real scheduler does
ALONE, DROP, REMATCH, ONE_GPU, SEATS = "alone", "drop", "rematch", "one-gpu", "seats"  # words of labels


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerRecord:
    """A description from which a scheduler is made. Raises InvalidInputError for fields that contradict each other."""

    queue: Queue
    backfill: Backfill = Backfill.NONE  # of queues of an order; a preemptive one needs no reservations
    drop: bool = False  # give up jobs whose deadline is infeasible, and pair only jobs that both meet theirs
    sharing: Sharing = Sharing.NONE
    one_gpu: bool = False  # only jobs on one device share, which is what tables of pairs measured
    seats: int = DEFAULT_SEATS  # jobs that may share a device
    rematch: bool = False  # running jobs are re-paired every slice; new ones start by first fit
    extension: str = ""  # name of a scheduler of another package, which decides in place of the queue

    def __post_init__(self) -> None:
        preempts, is_order = self.queue in PREEMPTIVE, self.queue in ORDERS
        refusals = (
            (self.backfill is not Backfill.NONE and not is_order, "only queues of an order have backfill"),
            (self.backfill is Backfill.EASY and preempts, "a queue that stops jobs needs no reservations"),
            (
                self.drop and (preempts or not is_order or self.backfill is Backfill.EASY),
                "drop needs an order that stops no job, without reservations",
            ),
            (self.is_policy and self.sharing is Sharing.GREEDY, "the server shares by matching, or not at all"),
            (
                self.rematch
                and (
                    self.queue not in REMATCHED
                    or self.sharing is not Sharing.MATCHING
                    or self.backfill is not Backfill.FIRST_FIT
                ),
                f"rematch needs matching, first-fit, and one of {', '.join(REMATCHED)}",
            ),
            (self.rematch and self.drop, "rematch drops no job"),
            (self.one_gpu and (not self.sharing or self.rematch), "one_gpu needs sharing without rematch"),
            (
                self.seats != DEFAULT_SEATS and not (self.plans_groups and 1 < self.seats <= MAX_SEATS),
                f"it shares in pairs only: 2 to {MAX_SEATS} seats with policy, or with matching of an order that stops "
                "and drops no job",
            ),
        )
        for is_refused, reason in refusals:
            if is_refused:
                raise InvalidInputError("no such scheduler", value=self.label, remedy=reason)

    @property
    def label(self) -> str:
        """The name of the scheduler in reports; with two seats, also its key in `PRESETS`."""
        if self.extension:
            return self.extension
        words = [
            self.queue,
            "" if self.rematch else self.backfill,
            DROP if self.drop else "",
            REMATCH if self.rematch else "",
            "" if self.is_policy else self.sharing,
            ALONE if self.is_policy and not self.sharing else "",
            ONE_GPU if self.one_gpu else "",
            f"{self.seats}-{SEATS}" if self.seats != DEFAULT_SEATS else "",
        ]
        return "-".join(filter(None, words))

    # --- what it does -------------------------------------------------------------------------------------------------

    @property
    def is_policy(self) -> bool:
        """Whether the server makes all decisions."""
        return self.queue in SERVER_DECIDES

    @property
    def is_preemptive(self) -> bool:
        """Whether the scheduler stops running jobs."""
        return self.queue in PREEMPTIVE

    @property
    def knows_durations(self) -> bool:
        """Whether the scheduler knows how long jobs will run, which no real scheduler does."""
        by_reservation = self.backfill is Backfill.EASY and self.queue is not Queue.QSSF
        return self.drop or self.is_policy or self.queue in ORACLES or by_reservation

    @property
    def plans_groups(self) -> bool:
        """Whether devices may have more than two seats. All other schedulers share in pairs only."""
        by_queue = self.queue in ORDERS and not self.is_preemptive and self.sharing is Sharing.MATCHING
        return not self.drop and not self.rematch and (by_queue or (self.queue is Queue.POLICY and bool(self.sharing)))

    @property
    def stops_jobs(self) -> bool:
        """Whether the scheduler stops or moves running jobs, so that jobs pay for checkpoints."""
        return self.is_preemptive or self.rematch

    @property
    def uses_guest_ends_first(self) -> bool:
        """Whether `guest_ends_first` changes the scheduler's decisions."""
        return bool(self.sharing) and not self.stops_jobs

    # --- related schedulers -------------------------------------------------------------------------------------------

    @property
    def unshared(self) -> "SchedulerRecord | None":
        """The same scheduler without sharing; None for a scheduler that shares nothing."""
        if not self.sharing:
            return None
        return replace(self, sharing=Sharing.NONE, one_gpu=False, seats=DEFAULT_SEATS, rematch=False)

    @property
    def two_seats(self) -> "SchedulerRecord":
        """The same scheduler with at most two jobs on a device."""
        return replace(self, seats=DEFAULT_SEATS)

    @property
    def one_gpu_only(self) -> "SchedulerRecord | None":
        """The same scheduler where only jobs on one device share.

        None for a scheduler whose jobs on several devices never share.
        """
        return replace(self, one_gpu=True) if self.sharing and not self.rematch else None

    def with_seats(self, seats: int) -> "SchedulerRecord | None":
        """Return the same scheduler with this number of jobs on a device; None for one that shares in pairs only."""
        return replace(self, seats=seats) if self.plans_groups else None

    @property
    def deadline_baseline(self) -> "SchedulerRecord":
        """The deadline scheduler that this scheduler is compared with. It shares where this scheduler shares."""
        if not self.sharing:
            return DEADLINE_BASELINE
        return replace(DEADLINE_BASELINE, sharing=Sharing.GREEDY, one_gpu=self.one_gpu)


def preset(name: str) -> SchedulerRecord:
    """Return the scheduler record of this name, or of another package's scheduler by its name or `package:function`.

    Raises InvalidInputError for an unknown name, UnfitError for a scheduler that cannot be loaded.
    """
    if name in PRESETS:
        return PRESETS[name]
    if is_reference(name) or name in extensions(ExtensionKind.SCHEDULER):
        find_extension(ExtensionKind.SCHEDULER, name)
        return SchedulerRecord(queue=Queue.FIFO, extension=name)
    close = get_close_matches(name.replace("+", "-"), PRESETS, n=3, cutoff=0.5)
    meant = f"perhaps {' or '.join(close)}; " if close else ""
    raise InvalidInputError(
        "no such policy",
        value=name,
        remedy=f"{meant}names are QUEUE[-easy or -first-fit][-drop]"
        f"[-greedy or -matching][-one-gpu] with QUEUE one of {', '.join(ORDERS)}; QUEUE-rematch-matching; "
        f"{Queue.SLOTS}; {', '.join(SERVER_DECIDES)}, each with -{ALONE} for no sharing. More seats: --seats, or "
        "a table of a study",
    )


def _all_records() -> Iterator[SchedulerRecord]:
    """Yield every scheduler record with two seats."""
    flags = (False, True)
    for queue, backfill, drop, rematch, sharing, one_gpu in product(Queue, Backfill, flags, flags, Sharing, flags):
        try:
            yield SchedulerRecord(
                queue=queue, backfill=backfill, drop=drop, rematch=rematch, sharing=sharing, one_gpu=one_gpu
            )
        except InvalidInputError:
            continue


DEADLINE_BASELINE = SchedulerRecord(queue=Queue.EDF, backfill=Backfill.FIRST_FIT, drop=True)  # what others must beat
PRESETS: Mapping[str, SchedulerRecord] = {record.label: record for record in _all_records()}
_DEFAULT = ("fifo", "fifo-first-fit", "fifo-easy", "sjf-first-fit")
_SHARED = ("qssf-easy", "sjf-easy", "tiresias-first-fit", "srtf-first-fit")
_SHARING = [f"{queue}{sharing}" for queue in _SHARED for sharing in ("", "-greedy", "-matching")]
DEFAULT = tuple(PRESETS[name] for name in (*_DEFAULT, *_SHARING))
COMMON_QUEUES = tuple(PRESETS[name] for name in ("fifo-easy", "qssf-easy", "tiresias-first-fit"))
ALL_QUEUES = (*COMMON_QUEUES, *(PRESETS[name] for name in ("sjf-easy", "srtf-first-fit")))  # and what oracles would do
_UNSHARED_BESIDE_GREEDY = ("fifo-first-fit", "sjf-first-fit", "edf-first-fit")
DEADLINE_DEFAULT = tuple(
    record
    for unshared in (*(PRESETS[name] for name in _UNSHARED_BESIDE_GREEDY), DEADLINE_BASELINE, PRESETS["slots"])
    for record in (unshared, replace(unshared, sharing=Sharing.GREEDY))
) + tuple(
    SchedulerRecord(queue=queue, sharing=sharing)
    for queue in (Queue.POLICY_DEADLINES, Queue.POLICY_NO_PROMISES)
    for sharing in (Sharing.NONE, Sharing.MATCHING)
)
