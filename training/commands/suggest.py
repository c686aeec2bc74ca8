"""Say which pairs to measure next: by a model's belief about a table's jobs, or by other device types' tables."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as Grid

from interfere.commands.data.transfer import Device
from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit

Mine = Annotated[str, typer.Argument(metavar="[TABLE]", help="What was measured so far: a folder, or a table's name.")]
Sources = Annotated[
    list[str] | None,
    typer.Option("--from", help="Table of the same jobs on other device types. Repeatable.", show_default=False),
]
Model = Annotated[
    Path | None,
    typer.Option("--model", help="Model that predicts them. Default: WORK/models/champion, else the shipped one."),
]


def suggest(
    mine: Mine = "",
    sources: Sources = None,
    device: Device = "",
    mode: Annotated[str, typer.Option(help="Sharing: timeslice, mps, mig, stream, priority or spatial.")] = "timeslice",
    job: Annotated[list[str] | None, typer.Option(help="Only pairs of these jobs. Repeatable.")] = None,
    count: Annotated[int, typer.Option(min=1, max=200, help="How many pairs.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws of likely matchings.")] = 0,
    model: Model = None,
    work: Work = DEFAULT_WORK,
    as_json: JsonFlag = False,
) -> None:
    """Name the pairs whose measurement teaches most about all others on a device type, the most telling first.

    With --from, tables of the same jobs on other device types say what to expect; without, the served model does.
    """
    from interfere.errors import InvalidInputError

    if sources:
        _from_other_device_types(mine, sources, device, count, work, as_json=as_json)
    elif mine:
        _from_model(mine, device, mode, job or [], count, seed, model, work, as_json=as_json)
    else:
        raise InvalidInputError(
            "pairs of which jobs?", value="no table", remedy="name yours, or give --from and --device"
        )


def _from_other_device_types(
    mine: str, sources: list[str], device: str, count: int, work: Path, *, as_json: bool
) -> None:
    from interfere.commands.data.transfer import transfer_inputs
    from interfere.predict.transfer.device_transfer import fit_transfer

    tables, profiles, measured = transfer_inputs(mine, sources, device, work)
    fitted = fit_transfer(tables, profiles, measured)
    pairs = fitted.suggest(count)
    grid = Grid("", "job", "beside")
    for k, (first, second) in enumerate(pairs, start=1):
        grid.add_row(str(k), first, "a second copy of it" if first == second else second)
    document = {
        "device_type": profiles[0].device_type,
        "sources": list(fitted.source_titles),
        "pairs": [list(pair) for pair in pairs],
    }
    emit(document, grid, as_json=as_json)


def _from_model(
    mine: str,
    device: str,
    mode: str,
    jobs: list[str],
    count: int,
    seed: int,
    model: Path | None,
    work: Path,
    *,
    as_json: bool,
) -> None:
    from features.pair import FeatureEncoder
    from interfere.config import load_settings
    from interfere.data.loading import table_folder
    from interfere.data.tables import read_table
    from interfere.errors import InvalidInputError
    from interfere.predict.next_pairs.from_table import table_belief
    from interfere.predict.next_pairs.suggestions import suggest_pairs
    from interfere.predict.online.prior import read_prior
    from interfere.predict.onnx import load_model

    settings = load_settings(work=work, model=model)
    table = read_table(table_folder(mine, settings.work))
    types = sorted({profile.device_type for profile in table.jobs})
    if not device and len(types) != 1:
        raise InvalidInputError("which device type?", value=", ".join(types), remedy="choose one: --device")
    known = table_belief(
        table,
        load_model(settings.served_folder, FeatureEncoder()),
        read_prior(settings.served_folder),
        device_type=device or types[0],
        mode=mode,
        jobs=tuple(jobs),
    )
    suggestions = suggest_pairs(known.belief, known.tried, count, seed=seed)
    grid = Grid("", "job", "beside", "speed known to ±", "lowers all errors by", "in likely matchings")
    for k, each in enumerate(suggestions, start=1):
        first, second = each.pair
        beside = "a second copy of it" if first == second else second
        grid.add_row(str(k), first, beside, f"{each.error_now:.3f}", f"{each.gain:.1%}", f"{each.chosen:.0%}")
    document = {
        "device_type": device or types[0],
        "sources": [str(settings.served_folder)],
        "pairs": [list(each.pair) for each in suggestions],
        "expected": [asdict(each) for each in suggestions],
    }
    emit(document, grid if suggestions else "every pair of these jobs is measured", as_json=as_json)
