"""Say which pairs of a table's jobs to measure next, and what each would tell."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as Grid

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit

Name = Annotated[str, typer.Argument(help="A table: a folder, or the name of one in the workspace or shipped.")]
Model = Annotated[
    Path | None,
    typer.Option("--model", help="Model that predicts them. Default: WORK/models/champion, else the shipped one."),
]


def suggest(
    table: Name,
    device: Annotated[str, typer.Option(help="Device type. Default: that of the table, if it has one alone.")] = "",
    mode: Annotated[str, typer.Option(help="Sharing: timeslice, mps, mig, stream or priority.")] = "timeslice",
    job: Annotated[list[str] | None, typer.Option(help="Only pairs of these jobs. Repeatable.")] = None,
    count: Annotated[int, typer.Option(min=1, help="How many pairs.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws of likely matchings.")] = 0,
    model: Model = None,
    work: Work = DEFAULT_WORK,
    as_json: JsonFlag = False,
) -> None:
    """Say which pairs of a table's jobs to measure next, and what each would tell."""
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
    content = read_table(table_folder(table, settings.work))
    types = sorted({profile.device_type for profile in content.jobs})
    if not device and len(types) != 1:
        raise InvalidInputError(
            "the table has jobs on several device types", value=", ".join(types), remedy="choose one with --device"
        )
    known = table_belief(
        content,
        load_model(settings.served_folder, FeatureEncoder()),
        read_prior(settings.served_folder),
        device_type=device or types[0],
        mode=mode,
        jobs=tuple(job or ()),
    )
    suggestions = suggest_pairs(known.belief, known.tried, count, seed=seed)
    grid = Grid("measure", "beside", "speed known to ±", "lowers all errors by", "in likely matchings")
    for each in suggestions:
        grid.add_row(*each.pair, f"{each.error_now:.3f}", f"{each.gain:.1%}", f"{each.chosen:.0%}")
    emit(
        {"suggestions": [asdict(each) for each in suggestions]},
        grid if suggestions else "every pair of these jobs is measured",
        as_json=as_json,
    )
