"""Options that the training commands share."""

from pathlib import Path
from typing import Annotated

import typer

from interfere.errors import InvalidInputError

Data = Annotated[
    list[str],
    typer.Option("--data", help="A table: a folder, or the name of one in the workspace or shipped. Repeatable."),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group-data",
        help="A table of which only the groups of three and more are learned from, where the others hold none of a "
        "device type and mode. Repeatable.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of folds and fits: the same seed and data give the same model.")]
Champion = Annotated[
    str,
    typer.Option(
        "--champion",
        metavar="NAME",
        help="Publish this model: gbdt (LightGBM), mlp (two-tower network), gp, ensemble, additive or mean. Default: "
        "the one that is selected by its error.",
        show_default=False,
    ),
]
Models = Annotated[
    str,
    typer.Option("--models", help="Compare only these, comma-separated. Default: all.", show_default=False),
]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Processes that work at the same time.")]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Where tasks run: processes of this machine, folder:PATH (`interfere work PATH` on each machine), "
        "ray[:ADDRESS], dask[:ADDRESS], or package:function.",
        show_default=False,
    ),
]
Tracking = Annotated[
    str | None,
    typer.Option(
        "--tracking",
        envvar="MLFLOW_TRACKING_URI",
        help="Address of an MLflow server. Default: the workspace itself.",
        show_default=False,
    ),
]


def notice_text(path: Path | None) -> str:
    """Return the text of a notice for the model card, "" without one.

    Raises InvalidInputError where it cannot be read.
    """
    try:
        return "" if path is None else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            "the notice cannot be read", value=f"{path}: {error}", remedy="give a text file in UTF-8: --notice FILE"
        ) from None
