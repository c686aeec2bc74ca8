"""Every scheduler by its name; each name works for every world, with deadlines and edge devices or without.

A name is words joined by `+`:
  ORDER[+easy or +first-fit][+drop][+greedy or +matching]
                                                  a queue, or a preemptive scheduler for the orders in `PREEMPTIVE`
  ORDER+rematch+greedy, ORDER+rematch+matching      a queue with first fit whose running jobs are re-paired every slice
  slots[+greedy or +matching]                     admission of deadlines by slots
  policy, policy-deadlines, policy-no-promises    the server decides everything: by slowdowns, by deadlines that it
                                                  promises, by deadlines that it does not promise
  policy-alone, ...-alone                         the same where no job may share
Orders: fifo; sjf and srtf by the true duration; qssf by an estimate from history, times the devices; tiresias by
attained service; edf by deadline; laxity by deadline less the true duration. Without a kind of backfill the queue
stops at the first job that does not fit; `first-fit` (once called `backfill`) starts any later job that fits and
reserves nothing; `easy` reserves devices for the first job that waits, as Slurm does. A preemptive scheduler needs no
reservations. `drop` gives up jobs whose deadline is infeasible, and lets greedy pair only jobs that both still meet
their deadlines. greedy shares with the cheapest host, matching by the server's decision. With `rematch` jobs on one
device are assigned anew every slice, running ones included, which then move: greedy by the single change that gains
most, again and again, matching by the best assignment; between slices tiresias and srtf go on as with +greedy, the
others start jobs on free devices only. `+one-gpu` after the name of any other scheduler that shares: only jobs on one
device share, which is what tables of pairs measured; a gang beside a gang is an assumption. `+seats-N` last, after
`+matching` and `policy` of schedulers that stop and drop no job: up to N jobs share a device.
Law: the reference of a scheduler that shares has the same order, estimates and rights to preempt and drop.
"""

from dataclasses import dataclass, replace
from itertools import product

from interfere.errors import InvalidInputError
from interfere.records.cluster import DEFAULT_SEATS, MAX_SEATS
from interfere.sim.schedulers.queue import Backfill

ORDERS = ("fifo", "sjf", "qssf", "tiresias", "srtf", "edf", "laxity")
PREEMPTIVE = ("tiresias", "srtf")  # orders whose schedulers stop running jobs
REMATCHED = ("fifo", "sjf", "qssf", "tiresias", "srtf")  # orders whose running jobs can be re-paired
ORACLE_ORDERS = ("sjf", "srtf", "laxity")  # know how long jobs will run, as no real scheduler does
DROP, GREEDY, MATCHING, SLOTS, ONE_GPU = "drop", "greedy", "matching", "slots", "one-gpu"
REMATCH = "rematch"
POLICY, POLICY_DEADLINES, POLICY_NO_PROMISES = "policy", "policy-deadlines", "policy-no-promises"
POLICIES = (POLICY, POLICY_DEADLINES, POLICY_NO_PROMISES)
ALONE = "-alone"
SEATS = "seats-"

DEFAULT = (
    "fifo",
    "fifo+first-fit",
    "fifo+easy",
    "qssf+easy",
    "qssf+easy+greedy",
    "qssf+easy+matching",
    "sjf+first-fit",
    "sjf+easy",
    "sjf+easy+greedy",
    "sjf+easy+matching",
    "tiresias+first-fit",
    "tiresias+first-fit+greedy",
    "tiresias+first-fit+matching",
    "srtf+first-fit",
    "srtf+first-fit+greedy",
    "srtf+first-fit+matching",
)
DEADLINE_BASELINE = "edf+first-fit+drop"  # the one to beat: what others are compared with where jobs have deadlines
DEADLINE_DEFAULT = tuple(
    name
    for pair in (
        *(
            (name, f"{name}+{GREEDY}")
            for name in (
                "fifo+first-fit",
                "sjf+first-fit",
                "edf+first-fit",
                "laxity+first-fit",
                DEADLINE_BASELINE,
                SLOTS,
            )
        ),
        (POLICY_DEADLINES + ALONE, POLICY_DEADLINES),
        (POLICY_NO_PROMISES + ALONE, POLICY_NO_PROMISES),
    )
    for name in pair
)
_FORMER_FIRST_FIT = "backfill"
_FORMER_NAMES = {
    "FIFO": "fifo+first-fit",
    "SJF": "sjf+first-fit",
    "EDF": "edf+first-fit",
    "least laxity": "laxity+first-fit",
    "EDF that drops": DEADLINE_BASELINE,
    "slot admission": SLOTS,
    "plan": POLICY_DEADLINES + ALONE,
    "plan without promises": POLICY_NO_PROMISES + ALONE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedName:
    """The words of a scheduler's name."""

    head: str  # an order, `slots` or one of `POLICIES`
    backfill: Backfill = Backfill.NONE
    drop: bool = False
    sharing: str = ""  # greedy, matching or empty
    one_gpu: bool = False  # do only jobs on one device share?
    seats: int = DEFAULT_SEATS  # jobs that may share a device
    rematch: bool = False  # are running jobs re-paired every slice?

    @property
    def is_policy(self) -> bool:
        """Does the server decide everything?"""
        return self.head in POLICIES

    @property
    def is_preemptive(self) -> bool:
        """Does it stop running jobs?"""
        return self.head in PREEMPTIVE

    @property
    def knows_durations(self) -> bool:
        """Does it know how long jobs will run, as no real scheduler does?"""
        return self.drop or self.is_policy or self.is_oracle

    @property
    def is_oracle(self) -> bool:
        """Are its estimates the true durations?"""
        return self.head in (*ORACLE_ORDERS, SLOTS) or (self.backfill is Backfill.EASY and self.head != "qssf")

    @property
    def plans_groups(self) -> bool:
        """May devices have other than two seats? The rest shares in pairs only."""
        by_queue = self.head in ORDERS and not self.is_preemptive and self.sharing == MATCHING
        return not self.drop and not self.rematch and (by_queue or (self.head == POLICY and bool(self.sharing)))

    @property
    def uses_slices(self) -> bool:
        """Does `slice_s` change what it decides?"""
        return self.rematch or (self.head in ORDERS and not self.is_preemptive and bool(self.sharing))

    @property
    def stops_jobs(self) -> bool:
        """Does it stop or move running jobs, so that checkpoints are paid?"""
        return self.is_preemptive or self.rematch

    @property
    def uses_whole_nodes(self) -> bool:
        """Does `whole_nodes` change what it decides?"""
        return not self.is_policy

    @property
    def uses_guest_ends_first(self) -> bool:
        """Does `guest_ends_first` change what it decides?"""
        return bool(self.sharing) and not self.stops_jobs


def parse_name(name: str) -> ParsedName:
    """The parts of a scheduler's name. Raises InvalidInputError for a name that is not in the registry."""
    canonical = canonical_name(name)
    without_seats, seats = _split_seats(canonical)
    base = without_seats.removesuffix(f"+{ONE_GPU}")
    if (parsed := _REGISTRY.get(base)) and (base == without_seats or (parsed.sharing and not parsed.rematch)):
        if seats != DEFAULT_SEATS and not (parsed.plans_groups and 1 < seats <= MAX_SEATS):
            raise InvalidInputError(
                "no such policy: it shares in pairs only" if seats <= MAX_SEATS else "no such policy: too many seats",
                value=name,
                remedy=f"2 to {MAX_SEATS} seats with {POLICY}, or with ORDER+{MATCHING} of an order that stops no job",
            )
        return replace(parsed, one_gpu=base != without_seats, seats=seats)
    raise InvalidInputError(
        "no such policy",
        value=name,
        remedy=f"{', '.join(f'{policy}[{ALONE}]' for policy in POLICIES)}, {SLOTS}[+{GREEDY} or +{MATCHING}], or "
        f"ORDER[+{Backfill.EASY} or +{Backfill.FIRST_FIT}][+{DROP}][+{GREEDY} or +{MATCHING}] with ORDER one of "
        f"{', '.join(ORDERS)} ({', '.join(PREEMPTIVE)} without +{DROP}; +{Backfill.EASY} without these two), or "
        f"ORDER+{REMATCH}+{GREEDY} or ORDER+{REMATCH}+{MATCHING} with ORDER one of {', '.join(REMATCHED)}",
    )


def canonical_name(name: str) -> str:
    """The name in the registry; former names ("EDF that drops + sharing", "sjf+backfill") are translated."""
    name = "+".join(Backfill.FIRST_FIT if word == _FORMER_FIRST_FIT else word for word in name.split("+"))
    without_seats, seats = _split_seats(name)
    if seats == DEFAULT_SEATS:
        name = without_seats
    former, _, sharing = name.partition(" + ")
    if former not in _FORMER_NAMES or sharing not in ("", "sharing"):
        return name
    canonical = _FORMER_NAMES[former]
    if not sharing:
        return canonical
    return canonical.removesuffix(ALONE) if canonical.endswith(ALONE) else f"{canonical}+{GREEDY}"


def registered_names() -> tuple[str, ...]:
    """All names of schedulers, without `+one-gpu`."""
    return tuple(_REGISTRY)


def reference_of(name: str) -> str:
    """The same scheduler without sharing; empty for one that shares nothing."""
    parsed = parse_name(name)
    if not parsed.sharing:
        return ""
    if parsed.is_policy:
        return parsed.head + ALONE
    if parsed.rematch:
        return f"{parsed.head}+{Backfill.FIRST_FIT}"
    return all_share_name(name_of_pairs(name)).rpartition("+")[0]


def all_share_name(name: str) -> str:
    """The name of the scheduler under which jobs on several devices share too."""
    without_seats, seats = _split_seats(canonical_name(name))
    return _with_seats(without_seats.removesuffix(f"+{ONE_GPU}"), seats)


def one_gpu_name(name: str) -> str:
    """The name of the scheduler under which only jobs on one device share; empty for one that shares nothing, or
    whose jobs on several devices never share."""
    parsed = parse_name(name)
    if not parsed.sharing or parsed.rematch:
        return ""
    return _with_seats(f"{all_share_name(name_of_pairs(name))}+{ONE_GPU}", parsed.seats)


def name_of_pairs(name: str) -> str:
    """The name of the scheduler under which two jobs at most share a device."""
    return _split_seats(canonical_name(name))[0]


def name_with_seats(name: str, seats: int) -> str:
    """The name of the scheduler under which so many jobs may share a device; empty for one that shares in pairs
    only."""
    return _with_seats(name_of_pairs(name), seats) if parse_name(name).plans_groups else ""


def _split_seats(name: str) -> tuple[str, int]:
    """The name without its seats, and these."""
    base, _, last = name.rpartition("+")
    count = last.removeprefix(SEATS)
    return (base, int(count)) if base and last.startswith(SEATS) and count.isdecimal() else (name, DEFAULT_SEATS)


def _with_seats(name: str, seats: int) -> str:
    return name if seats == DEFAULT_SEATS else f"{name}+{SEATS}{seats}"


def deadline_baseline_of(name: str) -> str:
    """The scheduler of deadlines that another is compared with: one that shares with one that shares."""
    parsed = parse_name(name)
    if not parsed.sharing:
        return DEADLINE_BASELINE
    baseline = f"{DEADLINE_BASELINE}+{GREEDY}"
    return one_gpu_name(baseline) if parsed.one_gpu else baseline


def _registry() -> dict[str, ParsedName]:
    names: dict[str, ParsedName] = {}
    sharings = ("", GREEDY, MATCHING)
    for head, backfill, drop, sharing in product(ORDERS, Backfill, (False, True), sharings):
        if not (drop and (head in PREEMPTIVE or backfill is Backfill.EASY)) and not (
            head in PREEMPTIVE and backfill is Backfill.EASY
        ):
            words = (head, backfill, DROP if drop else "", sharing)
            names["+".join(filter(None, words))] = ParsedName(head=head, backfill=backfill, drop=drop, sharing=sharing)
    for head, sharing in product(REMATCHED, (GREEDY, MATCHING)):
        names[f"{head}+{REMATCH}+{sharing}"] = ParsedName(
            head=head, backfill=Backfill.FIRST_FIT, sharing=sharing, rematch=True
        )
    for sharing in sharings:
        names["+".join(filter(None, (SLOTS, sharing)))] = ParsedName(head=SLOTS, sharing=sharing)
    for head in POLICIES:
        names[head] = ParsedName(head=head, sharing=MATCHING)
        names[head + ALONE] = ParsedName(head=head)
    return names


_REGISTRY = _registry()
