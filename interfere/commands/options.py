"""Options and forms of arguments that several commands share."""

import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interfere.commands.output import progress_note
from interfere.errors import InterfereError, InvalidInputError, remedy_for_name
from interfere.sharing_modes import SharingMode

if TYPE_CHECKING:
    from interfere.client import PolicyClient

DEFAULT_WORK = Path("interfere-work")

Work = Annotated[Path, typer.Option(envvar="INTERFERE_WORK", help="The workspace.")]
StoreFile = Annotated[
    Path | None,
    typer.Option("--store", help="SQLite file of the server's store. Default: WORK/store.db.", show_default=False),
]
Scope = Annotated[str, typer.Argument(help="Cluster or partition, as in the snapshots sent to match.")]
KnownDeviceType = Annotated[
    str, typer.Option("--device-type", help="Device type. Default: the only one the model knows.")
]
Mode = Annotated[SharingMode, typer.Option(help="Sharing mode.")]
Target = Annotated[str | None, typer.Option(help="Address of the server. Default: 127.0.0.1:50051.")]


def with_options(parameter: str, make: Callable[..., object]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces a parameter of a command by options: the parameters of `make`.

    The command gets the value that `make` returns for the options.
    """
    options = inspect.signature(make).parameters

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**values: Any) -> None:
            made = make(**{name: values.pop(name) for name in options})
            command(**values, **{parameter: made})

        replaced: list[inspect.Parameter] = []
        for each in inspect.signature(command).parameters.values():
            replaced += options.values() if each.name == parameter else (each,)
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in replaced]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads first
        return run

    return decorate


def parse_pair(text: str) -> tuple[str, str]:
    """Return the two names that a plus joins, as in `gemm+stream`. Raises InvalidInputError for anything else."""
    victim, _, neighbour = (name.strip() for name in text.partition("+"))
    if not (victim and neighbour):
        raise InvalidInputError("not a pair", value=repr(text), remedy="write victim+neighbour, e.g. gemm+stream")
    return victim, neighbour


def connect(target: str | None, *, timeout_s: float | None = None) -> "PolicyClient":
    """Return a client of the server at `target`, by default at the address in the settings (`INTERFERE_TARGET`).

    `timeout_s` replaces the timeout in the settings.
    """
    from interfere.client import PolicyClient
    from interfere.config import load_settings

    settings = load_settings(target=target)
    return PolicyClient(settings.target, timeout_s=timeout_s or settings.timeout_s)


def note_mistyped_workloads(client: "PolicyClient", names: Iterable[str]) -> None:
    """Name, on standard error, the known workload nearest to each name that the server has no profile of.

    A name that resembles no other is a new workload. Nothing is printed for a caller that may not list profiles.
    """
    try:
        known = {summary.workload for summary in client.list_profiles()}
    except InterfereError:
        return
    for name in sorted(set(filter(None, names)) - known):
        if remedy := remedy_for_name(name, sorted(known), " ").strip():
            progress_note(f"the server has no profile of workload {name!r}: {remedy}")
