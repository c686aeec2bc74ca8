"""Options and forms of arguments that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interfere.errors import InvalidInputError

if TYPE_CHECKING:
    from interfere.client import PolicyClient

DEFAULT_WORK = Path("interfere-work")

Work = Annotated[Path, typer.Option(envvar="INTERFERE_WORK", help="The workspace.")]
StoreFile = Annotated[
    Path | None,
    typer.Option("--store", help="SQLite file of the server's store. Default: WORK/store.db.", show_default=False),
]
Target = Annotated[str | None, typer.Option(help="Address of the server. Default: 127.0.0.1:50051.")]


def parse_pair(text: str) -> tuple[str, str]:
    """Return the two names that a plus joins, as in `gemm+stream`. Raises InvalidInputError for anything else."""
    victim, _, neighbour = (name.strip() for name in text.partition("+"))
    if not (victim and neighbour):
        raise InvalidInputError("not a pair", value=repr(text), remedy="write victim+neighbour, e.g. gemm+stream")
    return victim, neighbour


def connect(target: str | None, *, timeout_s: float | None = None) -> "PolicyClient":
    """Return a client of the server at `target`, else at the address of the settings (`INTERFERE_TARGET`).

    `timeout_s` takes the place of that of the settings.
    """
    from interfere.client import PolicyClient
    from interfere.config import load_settings

    settings = load_settings(target=target)
    return PolicyClient(settings.target, timeout_s=timeout_s or settings.timeout_s)
