"""What a quickstart found: pairings predicted and measured, and whether the chosen one beat chance."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table as Grid

from interfere.commands.quickstart.pairings import (
    PAST,
    Z95,
    Pairing,
    Table,
    Worth,
    all_pairings,
    block_noise,
    by,
    greedy_pairing,
    mean_and_error,
    mean_worth,
    slowdowns,
    worth,
)
from interfere.errors import UnfitError
from interfere.records import PairMeasurement, PairStatus

CAPTION = "A measured pair is predicted by its measurement, a hidden one by the model."


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One kind of pairing: what the model said before, what the core said."""

    name: str
    pairing: Pairing  # empty where the line is a mean over pairings
    predicted: Worth
    measured: Worth


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Mean slowdown of the chosen pairing minus that of chance, with its 95 % interval; negative is better."""

    value: float
    lower: float
    upper: float

    @property
    def verdict(self) -> str:
        """In words, whichever way it went."""
        if self.upper < 0:
            return "the chosen pairing beat the random mean"
        if self.lower > 0:
            return "the chosen pairing did NOT beat the random mean: it was worse"
        return "the chosen pairing did NOT beat the random mean beyond the noise of this run"


def compare(names: Sequence[str], chosen: Pairing, predicted: Table, measured: Table) -> list[Line]:
    """Chosen, greedy, random mean, best and worst possible, by this run's table of all pairs.

    A pairing with a pair that stayed unmeasured (unstable) counts neither for chance nor for the best and the worst.
    """
    complete = {key for key in measured if key[::-1] in measured}
    every = [pairing for pairing in all_pairings(names) if complete.issuperset(pairing)]
    if not every:
        raise UnfitError(
            "no pairing of all jobs was measured whole",
            value=f"{len(complete)} stable ordered pairs of {len(names)} jobs",
            remedy="other programs take the core: stop them, or choose it with interfere profile campaign --core",
        )

    def line(name: str, pairing: Pairing) -> Line:
        return Line(name=name, pairing=pairing, predicted=worth(pairing, predicted), measured=worth(pairing, measured))

    return [
        line("chosen by matching", chosen),
        line("greedy, in order", greedy_pairing(names, predicted)),
        Line(
            name=f"random (mean of {len(every):,})",
            pairing=(),
            predicted=mean_worth(every, predicted),
            measured=mean_worth(every, measured),
        ),
        line("best possible", min(every, key=by(measured))),
        line("worst possible", max(every, key=by(measured))),
    ]


def difference(chosen: Sequence[PairMeasurement], all_rows: Sequence[PairMeasurement]) -> Difference:
    """Chosen rows against the mean over all cross pairs, which is the mean over all random pairings."""
    mine_rows = [row for row in chosen if row.status is PairStatus.OK]
    chance_rows = [row for row in all_rows if row.status is PairStatus.OK and row.victim != row.neighbour]
    noise = block_noise([*all_rows, *chosen])
    mine, my_error = mean_and_error(mine_rows, noise)
    theirs, their_error = mean_and_error(chance_rows, noise)
    half = Z95 * float((my_error**2 + their_error**2) ** 0.5)
    return Difference(value=mine - theirs, lower=mine - theirs - half, upper=mine - theirs + half)


def rows_of(pairing: Pairing, rows: Sequence[PairMeasurement]) -> list[PairMeasurement]:
    """Both directions of every pair of a pairing."""
    wanted = {key for a, b in pairing for key in ((a, b), (b, a))}
    return [row for row in rows if (row.victim, row.neighbour) in wanted]


def prediction_error(pairing: Pairing, predicted: Table, rows: Sequence[PairMeasurement]) -> float:
    """Mean |predicted - measured| / measured over both sides of a pairing's pairs."""
    measured = slowdowns(rows_of(pairing, rows))
    return sum(abs(predicted[key] - value) / value for key, value in measured.items()) / len(measured)


def grid(lines: Sequence[Line]) -> Grid:
    """The comparison as people read it."""
    table = Grid(box=SIMPLE_HEAD, pad_edge=False, caption_justify="left", caption=CAPTION)
    table.add_column("pairing", no_wrap=True)
    headings: Sequence[tuple[str, Callable[[Worth], str]]] = (
        ("mean slowdown", lambda w: _show(w.mean_slowdown, ".3f")),
        ("worst victim", lambda w: _show(w.worst_victim, ".2f")),
        (f"pairs past {PAST} ×", lambda w: _show(w.past_cap, ".2g")),
    )
    for heading, _ in headings:
        table.add_column(f"{heading}\npredicted / measured", justify="right")
    for line in lines:
        table.add_row(line.name, *(f"{show(line.predicted)} / {show(line.measured)}" for _, show in headings))
    return table


def _show(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)


def lines_document(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The comparison for programs."""
    return [
        {
            "name": line.name,
            "pairing": [list(pair) for pair in line.pairing],
            "predicted": asdict(line.predicted),
            "measured": asdict(line.measured),
        }
        for line in lines
    ]
