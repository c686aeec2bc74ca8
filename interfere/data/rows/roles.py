"""Merges what was measured of a pair with either job as the important one, for readers that do not ask which one is.

A campaign in mode `priority` measures each ordered pair twice: the victim before its neighbour, and behind it. Models
and replays are asked for a victim beside a neighbour alone, so their row lies between the two.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from interfere.records import NAN, PairMeasurement, PairStatus


def merge_roles(pairs: Iterable[PairMeasurement]) -> tuple[PairMeasurement, ...]:
    """One row of each ordered pair: the geometric mean over both roles, with an interval that covers them both.

    Rows without roles stay the same objects. Of a pair that is valid in one role alone no slowdown is known.
    """
    rows: list[PairMeasurement] = []
    place_of_pair: dict[tuple[str, ...], int] = {}
    for row in pairs:
        if not row.important:
            rows.append(row)
            continue
        key = (row.victim, row.neighbour, row.device_type, row.mode, row.metric)
        if key in place_of_pair:
            rows[place_of_pair[key]] = _merged(rows[place_of_pair[key]], row)
        else:
            place_of_pair[key] = len(rows)
            rows.append(row)
    return tuple(rows)


def _merged(one: PairMeasurement, other: PairMeasurement) -> PairMeasurement:
    failed = next((row for row in (one, other) if row.status is not PairStatus.OK), None)
    if failed is not None:
        return replace(failed, important="", slowdown=NAN, lower=NAN, upper=NAN, passes=())
    ends = [end for row in (one, other) for end in (row.slowdown, row.lower, row.upper) if not math.isnan(end)]
    return replace(
        one,
        important="",
        slowdown=math.sqrt(one.slowdown * other.slowdown),
        lower=min(ends),
        upper=max(ends),
        passes=(),
        steal_frac=max(one.steal_frac, other.steal_frac),
        overlap_frac=min(one.overlap_frac, other.overlap_frac),
    )
