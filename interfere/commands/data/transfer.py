"""A device type with few measured pairs: what other device types' tables say of the rest."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit
from interfere.reports.document import Column, Estimate, Sentence
from interfere.reports.document import Table as Grid
from interfere.reports.numbers import TIMES

if TYPE_CHECKING:
    from interfere.data.tables import Table
    from interfere.records import JobProfile, PairMeasurement

Sources = Annotated[list[str], typer.Option("--data", help="Table of other device types. Repeatable.")]
Device = Annotated[
    str, typer.Option("--device-type", help="The device type; needed without a table, or where it has several.")
]


def transfer(
    mine: Annotated[str, typer.Argument(metavar="TABLE", help="Table with some pairs of the new device type.")],
    sources: Sources,
    device: Device = "",
    work: Work = DEFAULT_WORK,
    as_json: JsonFlag = False,
) -> None:
    """Predict the pairs of a device type that were not measured, from a few that were and other device types' tables.

    Nothing is written and nothing is served: these are no measurements.
    """
    from interfere.predict.transfer.pair_belief import fit_transfer

    tables, profiles, measured = transfer_inputs(mine, sources, device, work)
    fitted = fit_transfer(tables, profiles, measured)
    missing = [(a, b) for a in fitted.jobs for b in fitted.jobs if (a, b) not in fitted.measured]
    answers = fitted.predict(missing)
    score = fitted.hidden_pair_score()
    columns = (Column("victim"), Column("neighbour"), Column("slowdown [90 % interval]", TIMES))
    rows = tuple((each.victim, each.neighbour, Estimate(each.slowdown, each.lower, each.upper)) for each in answers)
    grid = Grid(title="", columns=columns, rows=rows)
    error = "unknown: fewer than 3 pairs" if score.speed_error != score.speed_error else f"{score.speed_error:.3f}"
    text = (
        f"{score.pairs} measured pairs, the rest from {', '.join(fitted.source_titles)}; error of speed of a measured "
        f"pair hidden from the others: {error}. Next: interfere data suggest"
    )
    document = {
        "device_type": profiles[0].device_type,
        "sources": list(fitted.source_titles),
        "hidden_pairs": score,
        "predictions": answers,
    }
    emit(document, [grid, Sentence(text)], as_json=as_json)


def transfer_inputs(
    mine: str, sources: list[str], device: str, work: Path
) -> "tuple[tuple[Table, ...], tuple[JobProfile, ...], tuple[PairMeasurement, ...]]":
    """Return the source tables, the profiles of the new device type, and the pairs measured on it."""
    from interfere.data.loading import table_folder
    from interfere.data.tables import read_table
    from interfere.errors import InvalidInputError, NotFoundError
    from interfere.records import NAN, JobProfile

    if not sources:
        raise InvalidInputError("no table of other device types", value="no --data", remedy="--data gavel")
    tables = tuple(read_table(table_folder(name, work)) for name in sources)
    if not mine:
        if not device:
            raise InvalidInputError(
                "which device type?", value="no table, no --device-type", remedy="--device-type rtx4090"
            )
        names = sorted({job.workload for table in tables for job in table.jobs})
        nothing = tuple(JobProfile(workload=name, device_type=device, step_time_s=NAN) for name in names)
        return tables, nothing, ()
    own = read_table(table_folder(mine, work))
    device_types = sorted({job.device_type for job in own.jobs})
    if not device and len(device_types) > 1:
        raise InvalidInputError("which device type?", value=", ".join(device_types), remedy="choose one: --device-type")
    device = device or device_types[0]
    profiles = tuple(job for job in own.jobs if job.device_type == device)
    if not profiles:
        raise NotFoundError("no job on this device type", value=device, remedy=f"one of {', '.join(device_types)}")
    return tables, profiles, tuple(pair for pair in own.pairs if pair.device_type == device)
