"""Memory slots: the granules of each device, numbered from 0, and which of them each grant holds.

A device of M bytes with granules of g bytes and an oversubscription ratio of ρ has floor(ρ · M / g) slots. A grant
holds the same number of slots on each of its devices. Law 1: no slot is taken twice, and no more slots than the device
has. Law 2: a grant keeps its numbers while they exist and nobody else holds them. A larger grant adds slots to them, a
smaller one keeps the first. Law 3: new numbers are those of the first free range that holds them all; where there is
none, the lowest free ones. So the slots of a job that is gone are the next to be taken.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from interfere.records import DeviceSlots, Grant, SlotRange

_Span = tuple[int, int]
"""The first and the last slot of a range."""


@dataclass(slots=True, kw_only=True)
class SlotAccount:
    """The slots of each device that grants memory, and which of them are taken."""

    slots: Mapping[str, DeviceSlots]  # by device id
    overcommitted: set[str] = field(default_factory=set)  # ids of the devices on which a grant did not fit
    _taken: dict[str, list[_Span]] = field(default_factory=dict)  # by device id, ascending

    @property
    def taken(self) -> dict[str, int]:
        """Return how many slots of each device are taken, by device id."""
        return {device_id: _count(spans) for device_id, spans in self._taken.items()}

    def take_all(self, grants: Iterable[Grant]) -> list[Grant]:
        """Take slots for the grants that fit, of which earlier ones come first, and return these with their slots."""
        # 1. Which grants fit, by the number of slots.
        free = {device_id: device.granules - _count(self._of(device_id)) for device_id, device in self.slots.items()}
        fitting = list[tuple[Grant, dict[str, int]]]()
        for grant in grants:
            needed = self._needed(grant)
            short = {device_id for device_id, slots in needed.items() if slots > free[device_id]}
            self.overcommitted |= short
            if not short:
                fitting.append((grant, needed))
                for device_id, slots in needed.items():
                    free[device_id] -= slots
        # 2. Every grant keeps the slots that it has, before any other takes new ones.
        kept = [self._keep(grant, needed) for grant, needed in fitting]
        # 3. New slots for the rest.
        return [
            replace(grant, slots=self._added(needed, spans) or None)
            for (grant, needed), spans in zip(fitting, kept, strict=True)
        ]

    def take(self, grant: Grant) -> Grant | None:
        """Take slots for a grant, and return it with these; None where too few are free."""
        taken = self.take_all([grant])
        return taken[0] if taken else None

    def give_back(self, grant: Grant) -> None:
        """Free the slots of a grant that was taken."""
        for device_id, spans in _by_device(grant.slots).items():
            self._taken[device_id] = _without(self._of(device_id), spans)

    def _needed(self, grant: Grant) -> dict[str, int]:
        """Return the number of slots that a grant takes on each device, by device id."""
        if math.isnan(grant.bytes):
            return {}
        return {name: self.slots[name].needs(grant.bytes) for name in grant.device_ids if name in self.slots}

    def _keep(self, grant: Grant, needed: Mapping[str, int]) -> dict[str, list[_Span]]:
        """Take the slots that a grant has, as far as it needs them and they are free, and return them by device id."""
        own, kept = _by_device(grant.slots), dict[str, list[_Span]]()
        for device_id, slots in needed.items():
            free = _without(_within(own.get(device_id, ()), self.slots[device_id].granules), self._of(device_id))
            kept[device_id] = self._take(device_id, _first(free, slots))
        return kept

    def _added(self, needed: Mapping[str, int], kept: Mapping[str, list[_Span]]) -> tuple[SlotRange, ...]:
        """Take the slots that a grant still needs, and return all that it has then."""
        ranges = list[SlotRange]()
        for device_id, slots in needed.items():
            spans, missing = kept[device_id], slots - _count(kept[device_id])
            if missing:
                free = _without([(0, self.slots[device_id].granules - 1)], self._of(device_id))
                whole = [span for span in free if not spans and _count([span]) >= missing]
                spans = _ascending((*spans, *self._take(device_id, _first(whole or free, missing))))
            ranges += (SlotRange(device_id=device_id, first=first, last=last) for first, last in spans)
        return tuple(ranges)

    def _of(self, device_id: str) -> list[_Span]:
        return self._taken.get(device_id, [])

    def _take(self, device_id: str, spans: list[_Span]) -> list[_Span]:
        if spans:
            self._taken[device_id] = _ascending((*self._of(device_id), *spans))
        return spans


def _by_device(ranges: Iterable[SlotRange] | None) -> dict[str, list[_Span]]:
    """Return the ascending spans of ranges, by device id."""
    spans: dict[str, list[_Span]] = {}
    for each in ranges or ():
        spans.setdefault(each.device_id, []).append((each.first, each.last))
    return {device_id: _ascending(of_device) for device_id, of_device in spans.items()}


def _count(spans: Iterable[_Span]) -> int:
    """Return the number of slots in spans."""
    return sum(last - first + 1 for first, last in spans)


def _within(spans: Iterable[_Span], slots: int) -> list[_Span]:
    """Return the parts of spans that a device of so many slots has."""
    return [(first, min(last, slots - 1)) for first, last in spans if first < slots]


def _first(spans: Iterable[_Span], count: int) -> list[_Span]:
    """Return the first `count` slots of ascending spans."""
    found = list[_Span]()
    for first, last in spans:
        if count <= 0:
            break
        found.append((first, min(last, first + count - 1)))
        count -= last - first + 1
    return found


def _ascending(spans: Iterable[_Span]) -> list[_Span]:
    """Return spans in ascending order, with those that touch or overlap joined."""
    joined = list[_Span]()
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def _without(spans: Iterable[_Span], removed: Sequence[_Span]) -> list[_Span]:
    """Return the parts of ascending spans that no removed span covers."""
    left = list[_Span]()
    for first, last in spans:
        for from_slot, to_slot in removed:
            if to_slot < first or from_slot > last:
                continue
            if from_slot > first:
                left.append((first, from_slot - 1))
            first = to_slot + 1  # noqa: PLW2901 - the rest of the span
        if first <= last:
            left.append((first, last))
    return left
