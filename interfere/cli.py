"""The command line: one group of commands, found through entry points, each imported only when it runs.

A missing library is one line with the extra that brings it. A command of another package that cannot be loaded is named
in the help and harms no other command.
"""

import json
import os
import sys
from importlib.metadata import EntryPoint
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import interfere
from interfere.errors import InterfereError, InvalidInputError, UnfitError, remedy_for_name
from interfere.extensions import ExtensionKind, extensions, help_line, load_extension, other_extensions
from interfere.installation import extra_of, install_line

PURPOSES = {
    "Start here": ("quickstart", "serve", "match"),
    "Ask a server": ("predict", "explain", "advise", "grants", "models", "profiles"),
    "Tell a server what was measured": ("observe", "watch"),
    "Measure": ("profile", "probe", "onboard", "data"),
    "Train and publish": ("train", "evaluate", "tune", "promote", "retrain", "work", "ui"),
    "What would sharing do, what has it done?": (
        "whatif",
        "replay",
        "study",
        "audit",
        "timeline",
        "advise-copies",
    ),
    "Run it beside a scheduler": ("callers", "run", "agent", "slurm", "kubernetes", "scopes", "store", "dashboard"),
}
"""What people come for → the commands for it. Commands of other distributions stand under "More"."""

FIRST_SCREEN = """\
interfere predicts how much GPU jobs slow each other down, and tells a
scheduler which of them should share a device.

  interfere quickstart           try everything here, without a GPU
  interfere serve                run a server with the shipped model, and then:
  interfere match --example      jobs and devices in, who starts where out
  interfere data import --help   bring your measurements or your job records
  interfere whatif --help        what sharing would do to your cluster

All commands: interfere --help. One of them: interfere COMMAND --help."""


RUN_AGAIN = "run the same command again: it starts anew, or goes on from what an earlier run has kept"


def registered_commands() -> dict[str, EntryPoint]:
    """Return the entry point of every registered command by its name."""
    return extensions(ExtensionKind.COMMAND)


def load_command(entry: EntryPoint) -> Any:
    """Import a command and return it in Click's form. Raises UnfitError for a broken one of another package."""
    loaded = load_extension(entry, ExtensionKind.COMMAND)
    if isinstance(loaded, typer.Typer):
        return typer.main.get_command(loaded)
    if callable(getattr(loaded, "make_context", None)):
        return loaded  # made with Click
    if not callable(loaded):
        raise UnfitError(f"the command '{entry.name}' is no function, and none of Typer or Click", value=entry.value)
    of_function = typer.Typer(add_completion=False)
    of_function.command()(loaded)
    return typer.main.get_command(of_function)


class CommandGroup(TyperGroup):
    """All registered commands: help and completion read a command's source, and only running it imports it."""

    # `ctx` is Click's context, whose class has no one name: some versions of typer bring a Click of their own.

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - Click's signature
        """Return the names of the commands in the order of their registration."""
        return list(registered_commands())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - Click's signature
        """Return a description of a command, with its help line and nothing to run; None for an unknown name."""
        entry = registered_commands().get(cmd_name)
        return TyperCommand(cmd_name, short_help=help_line(entry)) if entry else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - Click's signature
        """Write the commands under what people come for."""
        unlisted = dict(registered_commands())
        width = max(len(name) for name in unlisted)
        for purpose, names in (*PURPOSES.items(), ("More", tuple(unlisted))):
            entries = [(name, unlisted.pop(name)) for name in names if name in unlisted]
            if entries:
                with formatter.section(purpose):
                    formatter.write_dl([(name.ljust(width), help_line(entry)) for name, entry in entries])
        if further := [(name, f"{kind.noun}: {help_line(entry)}") for kind, name, entry in other_extensions()]:
            with formatter.section("Not commands, but what other packages add to them"):
                formatter.write_dl([(name.ljust(width), line) for name, line in further])

    def invoke(self, ctx: Any) -> Any:
        """Run a command. Where Ctrl-C ends it, print what is kept and how to go on; the exit status is 130."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            notes = getattr(interrupt, "__notes__", [])
            typer.echo(f"interrupted; {notes[0] if notes else RUN_AGAIN}", err=True)
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that is to run, or whose options the shell asks for."""
        name, known = args[0], registered_commands()
        if name not in known:
            if not name.startswith("-") and not ctx.resilient_parsing:
                ctx.fail(f"no such command: {name}; {remedy_for_name(name, known)}")
            return super().resolve_command(ctx, args)
        try:
            return name, load_command(known[name]), args[1:]
        except (InterfereError, ModuleNotFoundError):
            if not ctx.resilient_parsing:
                raise
            return name, self.get_command(ctx, name), args[1:]  # a shell that completes gets no traceback


app = typer.Typer(
    cls=CommandGroup,
    help=(interfere.__doc__ or "").partition("\n")[0],
    invoke_without_command=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 120},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"interfere {interfere.__version__}")
        raise typer.Exit


@app.callback()  # without a docstring: it would stand in the help
def _print_help_without_command(
    ctx: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback prints and exits
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(FIRST_SCREEN)


def main(arguments: list[str] | None = None) -> None:
    """Run one command. Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    # What follows `--` are the arguments of another program.
    as_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    try:
        typer.main.get_command(app)(arguments, prog_name="interfere")
    except InterfereError as error:
        sys.exit(report_error(error, as_json=as_json))
    except ModuleNotFoundError as error:
        sys.exit(report_error(missing_library(error), as_json=as_json))
    except KeyboardInterrupt:
        sys.exit(130)


def console_script() -> None:
    """Run `main` for a shell, where a reader that closes the pipe early (`| head`) is no error of ours."""
    try:
        main()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit must not fail again
        sys.exit(1)


def missing_library(error: ModuleNotFoundError) -> UnfitError:
    """Return the error to report for a library that is not installed, with the line that installs it."""
    library = (error.name or "?").partition(".")[0]
    extra = extra_of(library)
    remedy = install_line(extra) if extra else f"install {library}"
    return UnfitError(f"this command needs '{library}', which is not installed", remedy=remedy)


def report_error(error: InterfereError, *, as_json: bool) -> int:
    """Print an error on standard error, and with --json as the one document on standard output; return the status."""
    typer.echo(f"error: {error}", err=True)
    if as_json:
        document: dict[str, Any] = {"code": error.code, "what": error.what, "remedy": error.remedy}
        document["value"] = None if error.value is None else str(error.value)
        if isinstance(error, InvalidInputError):
            document["violations"] = [
                {"field": v.field, "what": v.what, "value": v.value, "remedy": v.remedy} for v in error.violations
            ]
        typer.echo(json.dumps({"error": document}, indent=2))
    return error.exit_status
