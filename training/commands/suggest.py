"""Say which pairs to measure next: by a model's belief about a table's jobs, or by other device types' tables."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interfere.commands.data.transfer import Device
from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit
from interfere.reports.document import Column, Table
from interfere.reports.numbers import fixed, percent
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

if TYPE_CHECKING:
    from interfere.predict.transfer.pair_belief import PairBelief
    from interfere.predict.transfer.suggestions import Suggestion

Mine = Annotated[str, typer.Argument(metavar="[TABLE]", help="What was measured so far: a folder, or a table's name.")]
Sources = Annotated[
    list[str] | None,
    typer.Option("--data", help="Table of the same jobs on other device types. Repeatable.", show_default=False),
]
Model = Annotated[
    Path | None,
    typer.Option("--model", help="Model that predicts them. Default: WORK/models/champion, else the shipped one."),
]


def suggest(
    mine: Mine = "",
    sources: Sources = None,
    device: Device = "",
    mode: Annotated[SharingMode, typer.Option(help="How the jobs share a device.")] = DEFAULT_MODE,
    job: Annotated[list[str] | None, typer.Option(help="Only pairs of these jobs. Repeatable.")] = None,
    count: Annotated[int, typer.Option(min=1, max=200, help="How many pairs.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws of likely matchings.")] = 0,
    model: Model = None,
    work: Work = DEFAULT_WORK,
    as_json: JsonFlag = False,
) -> None:
    """Name the pairs whose measurement teaches most about all others on a device type, the most telling first.

    With --data, tables of the same jobs on other device types say what to expect; without, the served model does.
    """
    from interfere.errors import InvalidInputError

    if sources:
        known, device_type = _from_other_device_types(mine, sources, device, work)
    elif mine:
        known, device_type = _from_model(mine, device, mode, job or [], model, work)
    else:
        raise InvalidInputError(
            "pairs of which jobs?", value="no table", remedy="name yours, or give --data and --device-type"
        )
    suggestions = known.suggest(count, seed=seed)
    document = {
        "device_type": device_type,
        "sources": list(known.source_titles),
        "pairs": [list(each.pair) for each in suggestions],
        "expected": [asdict(each) for each in suggestions],
    }
    emit(document, [_table(suggestions)] if suggestions else "every pair of these jobs is measured", as_json=as_json)


def _from_other_device_types(mine: str, sources: list[str], device: str, work: Path) -> "tuple[PairBelief, str]":
    """Return the belief from tables of other device types, and the device type."""
    from interfere.commands.data.transfer import transfer_inputs
    from interfere.predict.transfer.pair_belief import fit_transfer

    tables, profiles, measured = transfer_inputs(mine, sources, device, work)
    return fit_transfer(tables, profiles, measured), profiles[0].device_type


def _from_model(
    mine: str, device: str, mode: SharingMode, jobs: list[str], model: Path | None, work: Path
) -> "tuple[PairBelief, str]":
    """Return the belief from the served model, and the device type."""
    from interfere.config import load_settings
    from interfere.data.loading import table_folder
    from interfere.data.tables import read_table
    from interfere.errors import InvalidInputError, NotFoundError, remedy_for_name
    from interfere.features.pair import FeatureEncoder
    from interfere.predict.onnx import load_model
    from interfere.predict.transfer.first_predictions import read_first_predictions
    from interfere.predict.transfer.pair_belief import site_belief

    settings = load_settings(work=work, model=model)
    folder = table_folder(mine, settings.work)
    table, first = read_table(folder), read_first_predictions(folder)
    types = sorted({profile.device_type for profile in table.jobs})
    if not device and len(types) != 1:
        raise InvalidInputError("which device type?", value=", ".join(types), remedy="choose one: --device-type")
    device = device or types[0]
    profiled = sorted({profile.workload for profile in table.jobs if profile.device_type == device})
    for name in jobs:
        if profiled and name not in profiled:
            remedy = remedy_for_name(name, profiled)
            raise NotFoundError(f"no profile of this workload on {device}", value=name, remedy=remedy)
    served = load_model(settings.served_folder, FeatureEncoder())
    return site_belief(table, served, device_type=device, mode=mode, jobs=tuple(jobs), first=first), device


def _table(suggestions: "tuple[Suggestion, ...]") -> Table:
    """Return the suggestions as people read them."""
    rows = []
    for k, each in enumerate(suggestions, start=1):
        first, second = each.pair
        beside = "a second copy of it" if first == second else second
        rows.append((str(k), first, beside, each.error_now, each.gain, each.chosen))
    columns = (
        *map(Column, ("", "job", "beside")),
        Column("speed known to ±", fixed(3)),
        Column("lowers all errors by", percent(1)),
        Column("in likely matchings", percent()),
    )
    return Table(title="", columns=columns, rows=tuple(rows))
