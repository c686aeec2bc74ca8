"""Back up, restore, check or repair a server's store."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from interfere.commands.options import StoreFile
from interfere.commands.output import JsonFlag, emit

if TYPE_CHECKING:
    from interfere.store.sqlite.maintenance import StoreReport

app = typer.Typer(add_completion=False, no_args_is_help=True)

OwnWork = Annotated[Path | None, typer.Option("--work", help="Workspace. Default: ./interfere-work.")]
ServerConfig = Annotated[Path | None, typer.Option("--config", help="TOML file with the server's settings.")]


def _path(store: Path | None) -> Path:
    from interfere.config import load_settings
    from interfere.errors import UnfitError

    settings = load_settings(store=store)
    if settings.database:
        remedy = "PostgreSQL checks and repairs it; backup, restore and copy are for both"
        raise UnfitError("the store is a database, and no file", value=settings.database, remedy=remedy)
    return settings.store_path


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(help="The new file: NAME.tar holds everything, another name the store.")],
    store: StoreFile = None,
    work: OwnWork = None,
    config: ServerConfig = None,
    as_json: JsonFlag = False,
) -> None:
    """Copy the store, and into NAME.tar also the workspace's models, tables and training runs, while servers write.

    Everything that was acknowledged before is in the copy. A database is copied too. Keys are never in it.
    """
    from interfere.config import load_settings
    from interfere.store.backup import back_up

    done = back_up(load_settings(config, store=store, work=work), target)
    left_out = [f"left out: {row}" for row in done.left_out]
    page = "\n".join([_page(done.store, f"backup: {target}, {done.files} files"), *map(escape, left_out)])
    emit(asdict(done.store) | asdict(done) | {"backup": str(target)}, page, as_json=as_json)
    if left_out:
        raise typer.Exit(1)


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(help="A backup.")],
    store: StoreFile = None,
    work: OwnWork = None,
    config: ServerConfig = None,
    as_json: JsonFlag = False,
) -> None:
    """Put a backup in its place, while no server holds that; what was there is moved aside.

    A database has to be empty.
    """
    from interfere.config import load_settings
    from interfere.store.backup import restore as put_back

    settings = load_settings(config, store=store, work=work)
    done = put_back(settings, source)
    lines = [f"restored: {settings.store_address}, {done.files} files"]
    lines += [f"what was there before is kept as {path}" for path in done.kept]
    document = {"store": str(settings.store_address), "files": done.files, "kept": done.kept}
    emit(document, escape("\n".join(lines)), as_json=as_json)


@app.command()
def copy(
    source: Annotated[str, typer.Argument(help="File of a store, or address of its database.")],
    target: Annotated[str, typer.Argument(help="A new file, or an empty database.")],
    as_json: JsonFlag = False,
) -> None:
    """Copy a store between a file and a PostgreSQL database, also while servers write the source."""
    from interfere.store.store import copy_store, store_address

    counts, left_out = copy_store(store_address(source), store_address(target))
    rows = ", ".join(f"{count} {table}" for table, count in counts.items())
    lines = [f"copied to {target}", rows, *(f"left out: {row}" for row in left_out)]
    emit({"target": target, "rows": counts, "left_out": left_out}, escape("\n".join(lines)), as_json=as_json)
    if left_out:
        raise typer.Exit(1)


@app.command()
def check(store: StoreFile = None, as_json: JsonFlag = False) -> None:
    """Say what the store holds and what is wrong with it. Exit status 1 where something is."""
    from interfere.store.sqlite.maintenance import check as look

    report = look(_path(store))
    emit(report, _page(report, f"store: {report.path}"), as_json=as_json)
    if report.problems:
        raise typer.Exit(1)


@app.command()
def repair(store: StoreFile = None, as_json: JsonFlag = False) -> None:
    """Keep what can be read in a new file; the old one is moved aside, never deleted. No server may hold it."""
    from interfere.store.sqlite.maintenance import repair as mend

    report, kept = mend(_path(store))
    text = _page(report, f"the store before is kept as {kept}")
    emit(asdict(report) | {"kept": str(kept)}, text, as_json=as_json)


def _page(report: "StoreReport", title: str) -> str:
    rows = ", ".join(f"{count} {table}" for table, count in report.rows.items())
    problems = [f"problem: {problem}" for problem in report.problems] or ["no problem found"]
    set_aside = [f"set aside: {row}" for row in report.set_aside]
    return escape("\n".join([title, f"format {report.format}: {rows}", *problems, *set_aside]))
