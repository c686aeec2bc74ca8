"""Options that the training commands share."""

from pathlib import Path
from typing import Annotated

import typer

from interfere.config import load_settings
from interfere.errors import InvalidInputError

Data = Annotated[
    list[str],
    typer.Option("--data", help="A table: a folder, or the name of one in the workspace or shipped. Repeatable."),
]
Work = Annotated[Path | None, typer.Option("--work", help="The workspace. Default: ./interfere-work.")]
Seed = Annotated[int, typer.Option(min=0, help="Same seed and data, same model.")]

Tracking = Annotated[
    str | None,
    typer.Option(
        "--tracking",
        envvar="MLFLOW_TRACKING_URI",
        help="Address of an MLflow server. Default: the workspace itself.",
        show_default=False,
    ),
]


def workspace(work: Path | None) -> Path:
    """The one given, else of the settings (`INTERFERE_WORK`)."""
    return load_settings(work=work).work


def unordered_pair(text: str) -> tuple[str, str]:
    """`a+b` as a pair. Raises InvalidInputError for anything else."""
    first, _, second = (part.strip() for part in text.partition("+"))
    if not first or not second:
        raise InvalidInputError("not a pair", value=repr(text), remedy="write victim+neighbour, e.g. gemm+stream")
    return first, second
