"""Compare the chosen pairing with greedy, random, best and worst ones, as predicted and as measured."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table as Grid

from interfere.commands.quickstart.pairings import (
    SLOWDOWN_CAP,
    Z95,
    Pairing,
    PairingScore,
    Slowdowns,
    all_pairings,
    block_noise,
    by_mean_slowdown,
    greedy_pairing,
    mean_and_error,
    mean_score,
    measured_slowdowns,
    score_pairing,
)
from interfere.errors import UnfitError
from interfere.records import PairMeasurement, PairStatus

CAPTION = "A measured pair is predicted by its measurement, a hidden one by the model."


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One pairing, or the mean over several: its score by the model's predictions and by the measurements."""

    name: str
    pairing: Pairing  # empty where the row is a mean over pairings
    predicted: PairingScore
    measured: PairingScore


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceFromRandom:
    """Mean slowdown of the chosen pairing minus that of random ones, with its 95 % interval; negative is better."""

    value: float
    lower: float
    upper: float

    @property
    def verdict(self) -> str:
        """Return in words whether the chosen pairing was better, whichever way it went."""
        if self.upper < 0:
            return "the chosen pairing beat the random mean"
        if self.lower > 0:
            return "the chosen pairing did NOT beat the random mean: it was worse"
        return "the chosen pairing did NOT beat the random mean beyond the noise of this run"


def compare_pairings(
    names: Sequence[str], chosen: Pairing, predicted: Slowdowns, measured: Slowdowns
) -> list[ComparisonRow]:
    """Return the rows of the chosen pairing, the greedy one, the random mean, the best and the worst possible.

    A pairing with a pair that has no stable measurement counts neither for the random mean nor for the best and the
    worst. Raises UnfitError when no pairing of all jobs has all its pairs measured.
    """
    complete_pairs = {pair for pair in measured if pair[::-1] in measured}
    measured_pairings = [pairing for pairing in all_pairings(names) if complete_pairs.issuperset(pairing)]
    if not measured_pairings:
        raise UnfitError(
            "no pairing of all jobs was measured whole",
            value=f"{len(complete_pairs)} stable ordered pairs of {len(names)} jobs",
            remedy="other programs take the core: stop them, or choose it with interfere profile campaign --core",
        )
    random_mean = ComparisonRow(
        name=f"random (mean of {len(measured_pairings):,})",
        pairing=(),
        predicted=mean_score(measured_pairings, predicted),
        measured=mean_score(measured_pairings, measured),
    )
    return [
        comparison_row("chosen by matching", chosen, predicted, measured),
        comparison_row("greedy, in order", greedy_pairing(names, predicted), predicted, measured),
        random_mean,
        comparison_row("best possible", min(measured_pairings, key=by_mean_slowdown(measured)), predicted, measured),
        comparison_row("worst possible", max(measured_pairings, key=by_mean_slowdown(measured)), predicted, measured),
    ]


def comparison_row(name: str, pairing: Pairing, predicted: Slowdowns, measured: Slowdowns) -> ComparisonRow:
    """Return the row of one pairing."""
    return ComparisonRow(
        name=name,
        pairing=pairing,
        predicted=score_pairing(pairing, predicted),
        measured=score_pairing(pairing, measured),
    )


def difference_from_random(
    chosen: Sequence[PairMeasurement], all_rows: Sequence[PairMeasurement]
) -> DifferenceFromRandom:
    """Compare the chosen pairs with all pairs of different jobs, whose mean is that over all random pairings."""
    chosen_rows = [row for row in chosen if row.status is PairStatus.OK]
    random_rows = [row for row in all_rows if row.status is PairStatus.OK and row.victim != row.neighbour]
    noise = block_noise([*all_rows, *chosen])
    chosen_mean, chosen_error = mean_and_error(chosen_rows, noise)
    random_mean, random_error = mean_and_error(random_rows, noise)
    difference = chosen_mean - random_mean
    half_width = Z95 * float((chosen_error**2 + random_error**2) ** 0.5)
    return DifferenceFromRandom(value=difference, lower=difference - half_width, upper=difference + half_width)


def rows_of(pairing: Pairing, rows: Sequence[PairMeasurement]) -> list[PairMeasurement]:
    """Return the measurements of both directions of every pair of a pairing."""
    directions = {direction for a, b in pairing for direction in ((a, b), (b, a))}
    return [row for row in rows if (row.victim, row.neighbour) in directions]


def prediction_error(pairing: Pairing, predicted: Slowdowns, rows: Sequence[PairMeasurement]) -> float:
    """Return the mean of |predicted - measured| / measured over both directions of a pairing's pairs."""
    measured = measured_slowdowns(rows_of(pairing, rows))
    return sum(abs(predicted[pair] - slowdown) / slowdown for pair, slowdown in measured.items()) / len(measured)


def comparison_grid(rows: Sequence[ComparisonRow]) -> Grid:
    """Return the comparison as people read it."""
    table = Grid(box=SIMPLE_HEAD, pad_edge=False, caption_justify="left", caption=CAPTION)
    table.add_column("pairing", no_wrap=True)
    columns: Sequence[tuple[str, Callable[[PairingScore], str]]] = (
        ("mean slowdown", lambda score: _number(score.mean_slowdown, ".3f")),
        ("worst victim", lambda score: _number(score.worst_victim, ".2f")),
        (f"pairs past {SLOWDOWN_CAP} ×", lambda score: _number(score.past_cap, ".2g")),
    )
    for heading, _ in columns:
        table.add_column(f"{heading}\npredicted / measured", justify="right")
    for row in rows:
        table.add_row(row.name, *(f"{cell(row.predicted)} / {cell(row.measured)}" for _, cell in columns))
    return table


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)


def comparison_document(rows: Sequence[ComparisonRow]) -> list[dict[str, Any]]:
    """Return the comparison for programs."""
    return [
        {
            "name": row.name,
            "pairing": [list(pair) for pair in row.pairing],
            "predicted": asdict(row.predicted),
            "measured": asdict(row.measured),
        }
        for row in rows
    ]
