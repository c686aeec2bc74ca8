"""Every placement of a small cluster, compared level by level in exact arithmetic.

A placement gives every pending job one of: wait; alone on an empty device (a gang: on as many devices of one class);
beside another pending job of its size on empty devices; beside a resident of its size that is alone on its devices.
Devices of one class are interchangeable. Costs of float64 are added as whole multiples of one power of two, so no order
of additions decides which of two placements is better.

Law 1: placements are compared first by the weight that waits, priority by priority, then by the objective.
Law 2: for a max objective the last level is the smallest sum among the placements with no job above the largest cost.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from interfere.policy.device_class import DeviceClass
from interfere.records import ActionKind, Job, Plan
from tests.policy.oracle.random_clusters import RandomCluster
from tests.policy.oracle.scalar_costs import GroupCost, ScalarCosts, start_weight
from tests.policy.rules.one_pair import NOW_S

ROUNDING = 1e-12  # of the sum of what is added and subtracted at a level


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelKey:
    """What one level of the comparison is: its kind, and its priority where it has one."""

    kind: str  # waiting_weight, cost or max_cost
    priority: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One start that is allowed: which jobs, where, and what it adds at each level."""

    jobs: frozenset[int]  # places among the pending jobs
    added: tuple[int, ...]  # at each sum level, in units
    largest: float
    device_class: DeviceClass | None = None  # on empty devices of this class
    devices: int = 0  # empty devices that it takes
    seat: int = -1  # beside this resident


class IllegalPlanError(AssertionError):
    """A plan does something that no placement does."""


class Oracle:
    """The placements of one cluster."""

    def __init__(self, drawn: RandomCluster) -> None:
        self.drawn, self.costs = drawn, ScalarCosts(drawn)
        self.pending = drawn.snapshot.pending
        self._ageing_s = drawn.snapshot.limits.timing.ageing_s
        self._find_places()
        self.keys = self._level_keys()
        groups = list(self._groups())
        self._waits = [self._waiting_parts(job) for job in self.pending]
        self._units = self._units_of([*(parts for *_, parts, _ in groups), *self._waits])
        self._wait_added = [self._in_units(parts) for parts in self._waits]
        self.options = [
            Option(
                jobs=frozenset(jobs),
                added=self._in_units(parts),
                largest=largest,
                device_class=where,
                devices=devices,
                seat=seat,
            )
            for jobs, where, devices, seat, parts, largest in groups
        ]
        self._option_of = {(option.jobs, option.device_class, option.seat): option for option in self.options}

    # --- places -----------------------------------------------------------------------------------------------------

    def _find_places(self) -> None:
        """Empty devices of each class, and residents that are alone on devices of one class."""
        snapshot = self.drawn.snapshot
        self.class_of = {device.id: DeviceClass.of(device, NOW_S) for device in snapshot.devices}
        self.empty = Counter(self.class_of[device.id] for device in snapshot.devices if not device.residents)
        limit = snapshot.limits.max_devices
        self.max_devices = sum(self.empty.values()) if limit is None else min(limit, sum(self.empty.values()))
        devices_of: dict[str, list[str]] = {}
        resident_of: dict[str, Job] = {}
        crowded: set[str] = set()
        for device in snapshot.devices:
            for job in device.residents:
                devices_of.setdefault(job.id, []).append(device.id)
                resident_of[job.id] = job
                if len(device.residents) > 1:
                    crowded.add(job.id)
        self.residents = [(job, self.class_of[devices_of[name][0]]) for name, job in resident_of.items()]
        self.seats = [
            (resident_of[name], self.class_of[devices[0]], tuple(devices))
            for name, devices in devices_of.items()
            if name not in crowded
            and len(devices) == resident_of[name].gpus
            and len({self.class_of[device] for device in devices}) == 1
        ]

    def _groups(self) -> Iterator[tuple[tuple[int, ...], DeviceClass | None, int, int, dict[LevelKey, float], float]]:
        """Every start that is allowed: jobs, class, devices, seat, what it adds at each level, largest cost."""
        for i, job in enumerate(self.pending):
            for where in self.empty:
                if (cost := self.costs.solo(job, where)) is not None:
                    yield (i,), where, job.gpus, -1, self._parts(cost), cost.largest
                for j in range(i):
                    other = self.pending[j]
                    if other.gpus == job.gpus and (cost := self.costs.pair(other, job, where)) is not None:
                        yield (j, i), where, job.gpus, -1, self._parts(cost), cost.largest
            for seat, (resident, where, _) in enumerate(self.seats):
                if resident.gpus == job.gpus and (cost := self.costs.beside(job, resident, where)) is not None:
                    yield (i,), None, 0, seat, self._parts(cost), cost.largest

    # --- levels -----------------------------------------------------------------------------------------------------

    def _level_keys(self) -> tuple[LevelKey, ...]:
        waiting = sorted({job.priority for job in self.pending}, reverse=True)
        keys = [LevelKey(kind="waiting_weight", priority=p) for p in waiting]
        if self.costs.is_max:
            return (*keys, LevelKey(kind="max_cost"), LevelKey(kind="cost"))
        if not self.costs.is_weighted:
            return (*keys, LevelKey(kind="cost"))
        priorities = {job.priority for job in self.pending} | {job.priority for job, _ in self.residents}
        return (*keys, *(LevelKey(kind="cost", priority=p) for p in sorted(priorities, reverse=True)))

    @property
    def _sum_keys(self) -> list[LevelKey]:
        return [key for key in self.keys if key.kind != "max_cost"]

    def _parts(self, cost: GroupCost) -> dict[LevelKey, float]:
        parts: dict[LevelKey, float] = {}
        for priority, value in cost.parts:
            key = LevelKey(kind="cost", priority=priority if self.costs.is_weighted else None)
            parts[key] = parts.get(key, 0.0) + value
        return parts

    def _waiting_parts(self, job: Job) -> dict[LevelKey, float]:
        return {LevelKey(kind="waiting_weight", priority=job.priority): start_weight(job, self._ageing_s)}

    def _units_of(self, all_parts: Sequence[dict[LevelKey, float]]) -> list[Fraction]:
        """The largest power of two of which every cost of a level is a multiple."""
        units = []
        for key in self._sum_keys:
            denominators = [Fraction(parts[key]).denominator for parts in all_parts if key in parts]
            units.append(Fraction(1, max(denominators, default=1)))
        return units

    def _in_units(self, parts: dict[LevelKey, float]) -> tuple[int, ...]:
        pairs = zip(self._sum_keys, self._units, strict=True)
        return tuple(int(Fraction(parts.get(key, 0.0)) / unit) for key, unit in pairs)

    def _values(self, added: Sequence[int], largest: float) -> tuple[float, ...]:
        """The levels of a placement as numbers, in the order of `keys`."""
        sums = [float(value * unit) for value, unit in zip(added, self._units, strict=True)]
        if not self.costs.is_max:
            return tuple(sums)
        return (*sums[:-1], max(largest, self.floor), sums[-1])

    @property
    def floor(self) -> float:
        """The largest cost of a resident as it runs now; -inf without residents."""
        return max((self.costs.floor(job, where) for job, where in self.residents), default=-math.inf)

    def tolerances(self) -> tuple[float, ...]:
        """What rounding may change at each level: small beside what is added and subtracted there."""
        sizes = []
        for key in self.keys:
            if key.kind == "max_cost":
                sizes.append(max([abs(option.largest) for option in self.options] or [0.0]))
                continue
            k = self._sum_keys.index(key)
            parts = [abs(option.added[k]) for option in self.options] + [abs(added[k]) for added in self._wait_added]
            sizes.append(float(max(parts) * self._units[k]) * (len(self.pending) + 1))
        if self.costs.is_weighted:  # w (x - 1) is the difference of two larger numbers
            heaviest = [
                max((j.weight for j in self._jobs() if j.priority == key.priority), default=0.0) for key in self.keys
            ]
            sizes = [size + 100 * heavy for size, heavy in zip(sizes, heaviest, strict=True)]
        return tuple(ROUNDING * size for size in sizes)

    def _jobs(self) -> list[Job]:
        return [*self.pending, *(job for job, _ in self.residents)]

    # --- the best placement -----------------------------------------------------------------------------------------

    def best(self) -> tuple[float, ...]:
        """The levels of the best placement."""
        if not self.costs.is_max:
            return self._values(self._search(self.options, by_largest=False)[0], -math.inf)
        added, largest = self._search(self.options, by_largest=True)
        threshold = max(largest, self.floor)
        capped = [option for option in self.options if option.largest <= threshold]
        added, _ = self._search(capped, by_largest=False)
        return self._values(added, threshold)

    def _search(self, options: Sequence[Option], *, by_largest: bool) -> tuple[tuple[int, ...], float]:
        """What the best placement adds at the sum levels, and its largest cost.

        `by_largest`: after the waiting weight, the largest cost decides instead of the sum.
        """
        by_job: list[list[Option]] = [[] for _ in self.pending]
        for option in options:
            by_job[min(option.jobs)].append(option)
        classes = list(self.empty)
        memo: dict[object, tuple[tuple[int, ...], float]] = {}

        def key(found: tuple[tuple[int, ...], float]) -> tuple[object, ...]:
            added, largest = found
            return (*added[:-1], largest) if by_largest else added

        def search(
            left: frozenset[int], free: tuple[int, ...], seats: frozenset[int], devices: int
        ) -> tuple[tuple[int, ...], float]:
            if not left:
                return (0,) * len(self._units), -math.inf
            state = (left, free, seats, devices)
            if state in memo:
                return memo[state]
            i = min(left)
            found = [_plus(search(left - {i}, free, seats, devices), self._wait_added[i], -math.inf)]
            for option in by_job[i]:
                if not option.jobs <= left:
                    continue
                if option.seat >= 0:
                    if option.seat not in seats:
                        continue
                    rest = search(left - option.jobs, free, seats - {option.seat}, devices)
                else:
                    k = classes.index(option.device_class)
                    if free[k] < option.devices or devices < option.devices:
                        continue
                    fewer = (*free[:k], free[k] - option.devices, *free[k + 1 :])
                    rest = search(left - option.jobs, fewer, seats, devices - option.devices)
                found.append(_plus(rest, option.added, option.largest))
            memo[state] = min(found, key=key)
            return memo[state]

        free = tuple(self.empty[where] for where in classes)
        return search(frozenset(range(len(self.pending))), free, frozenset(range(len(self.seats))), self.max_devices)

    def all_levels(self) -> set[tuple[float, ...]]:
        """The levels of every placement."""
        by_job: list[list[Option]] = [
            [option for option in self.options if min(option.jobs) == i] for i in self._places
        ]
        found: set[tuple[float, ...]] = set()

        def place(left: frozenset[int], taken: list[Option], added: tuple[int, ...], largest: float) -> None:
            if not left:
                found.add(self._values(added, largest))
                return
            i = min(left)
            place(left - {i}, taken, *_plus((added, largest), self._wait_added[i], -math.inf))
            for option in by_job[i]:
                if option.jobs <= left and self._is_free(option, taken):
                    place(left - option.jobs, [*taken, option], *_plus((added, largest), option.added, option.largest))

        place(frozenset(self._places), [], (0,) * len(self._units), -math.inf)
        return found

    @property
    def _places(self) -> range:
        return range(len(self.pending))

    def _is_free(self, option: Option, taken: Sequence[Option]) -> bool:
        """Is there place for one more start beside those taken?"""
        if option.seat >= 0:
            return all(other.seat != option.seat for other in taken)
        of_class = sum(other.devices for other in taken if other.device_class == option.device_class)
        in_all = sum(other.devices for other in taken)
        assert option.device_class is not None
        fits = of_class + option.devices <= self.empty[option.device_class]
        return fits and in_all + option.devices <= self.max_devices

    # --- a plan -----------------------------------------------------------------------------------------------------

    def levels_of(self, plan: Plan) -> tuple[float, ...]:
        """The levels of a plan, from its actions alone. Raises IllegalPlanError where it breaks a rule."""
        if [action.job_id for action in plan.actions] != [job.id for job in self.pending]:
            raise IllegalPlanError("not one action for each pending job")
        on_places: dict[tuple[str, ...], list[int]] = {}
        added, largest = (0,) * len(self._units), -math.inf
        for i, action in enumerate(plan.actions):
            if action.kind is ActionKind.WAIT:
                added, largest = _plus((added, largest), self._wait_added[i], -math.inf)
            else:
                on_places.setdefault(tuple(sorted(action.places)), []).append(i)
        seat_of = {tuple(sorted(devices)): k for k, (_, _, devices) in enumerate(self.seats)}
        used: Counter[str] = Counter()
        for places, jobs in on_places.items():
            used.update(places)
            seat = seat_of.get(places, -1)
            where = self._class_of_empty(places) if seat < 0 else None
            option = self._option_of.get((frozenset(jobs), where, seat))
            if option is None or (seat < 0 and option.devices != len(places)):
                raise IllegalPlanError(f"{[self.pending[i].id for i in jobs]} on {places}: a rule forbids it")
            added, largest = _plus((added, largest), option.added, option.largest)
        if any(count > 1 for count in used.values()):
            raise IllegalPlanError(f"a device twice: {used}")
        devices = {device.id: device for device in self.drawn.snapshot.devices}
        empty_devices = sum(not devices[name].residents for name in used)
        if empty_devices > self.max_devices:
            raise IllegalPlanError(f"{empty_devices} empty devices of at most {self.max_devices}")
        return self._values(added, largest)

    def _class_of_empty(self, places: tuple[str, ...]) -> DeviceClass:
        devices = {device.id: device for device in self.drawn.snapshot.devices}
        classes = {self.class_of[name] for name in places}
        if len(classes) != 1 or any(devices[name].residents for name in places):
            raise IllegalPlanError(f"{places} are not empty devices of one class")
        return classes.pop()


def _plus(
    found: tuple[tuple[int, ...], float], added: tuple[int, ...], largest: float
) -> tuple[tuple[int, ...], float]:
    return tuple(a + b for a, b in zip(found[0], added, strict=True)), max(found[1], largest)
