"""The console script: discovers commands through entry points and imports a command only when it runs.

It knows no sibling folder by heart. A sibling that is not ours (someone's own `training/` on the import path) is named
and refused before any of its code runs; a missing extra is one line with its remedy.
"""

import ast
import json
import os
import sys
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

import interfere
from interfere.errors import InterfereError, InvalidInputError, UnfitError

GROUP = "interfere.commands"
ENCODER = "features"  # what training and serving import, and registers no command of its own
HOME = Path(interfere.__file__).resolve().parents[1]
EXTRAS = {
    "serve": ("onnxruntime", "scipy", "rustworkx", "grpc_health", "grpc_reflection", "prometheus_client"),
    "profile": ("torch", "psutil"),
    "train": ("pyarrow", "pandas", "sklearn", "lightgbm", "mlflow", "onnx", "onnxscript", "onnxmltools", "matplotlib"),
}


def require_own(package: str) -> None:
    """Raise UnfitError when importing `package` would run somebody else's code; nothing is imported to find out."""
    spec = find_spec(package)
    folders = [Path(p).resolve() for p in (spec.submodule_search_locations or [])] if spec else []
    if folders != [HOME / package]:
        raise UnfitError(
            f"the package '{package}' on the import path is not interfere's own ({HOME / package})",
            value=", ".join(map(str, folders)) or "nothing found",
            remedy="run from another folder, or take that folder off PYTHONPATH",
        )


def module_path(entry: EntryPoint) -> Path:
    """File of a command's module, found without importing it. Raises UnfitError when its package is not ours."""
    top, *rest = entry.module.split(".")
    require_own(top)
    return HOME.joinpath(top, *rest).with_suffix(".py")


def commands() -> dict[str, EntryPoint]:
    """Every registered command by name."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def help_line(entry: EntryPoint) -> str:
    """First docstring line of a command's module, read without importing it."""
    try:
        text = ast.get_docstring(ast.parse(module_path(entry).read_text(encoding="utf-8"))) or ""
    except (InterfereError, OSError, SyntaxError) as error:
        return f"unavailable: {error}".splitlines()[0]
    return text.partition("\n")[0]


def missing_extra(error: ModuleNotFoundError) -> UnfitError:
    """One line with the remedy for a library that is not installed."""
    name = (error.name or "?").partition(".")[0]
    extra = next((extra for extra, names in EXTRAS.items() if name in names), None)
    remedy = f"pip install 'interfere[{extra}]'" if extra else f"install {name}"
    return UnfitError(f"this command needs '{name}', which is not installed", remedy=remedy)


def main(arguments: list[str] | None = None) -> None:
    """Run one command. Exit status: 0 done, 1 failed, 2 wrong usage."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        _print_help()
    elif arguments[0] == "--version":
        typer.echo(f"interfere {interfere.__version__}")
    elif arguments[0] not in commands():
        known = ", ".join(commands())
        typer.echo(f"error: no such command: {arguments[0]}\n  remedy: one of {known}", err=True)
        sys.exit(2)
    else:
        sys.exit(_run(arguments[0], arguments[1:]))


def console_script() -> None:
    """`main` for a shell: a reader that leaves early (`| head`) is no error of ours."""
    try:
        main()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit must not fail again
        sys.exit(1)


def _print_help() -> None:
    typer.echo(f"{interfere.__doc__}\n\nUsage: interfere COMMAND [OPTIONS]   (each COMMAND has --help)\n")
    for name, entry in commands().items():
        typer.echo(f"  {name:<11}{help_line(entry)}")


def _run(name: str, arguments: list[str]) -> int:
    """Exit status of one command; usage errors are typer's own (2)."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments  # the rest is another program's
    as_json = "--json" in own
    try:
        entry = commands()[name]
        for package in (entry.module.partition(".")[0], ENCODER):
            require_own(package)
        typer.main.get_command(entry.load())(arguments, prog_name=f"interfere {name}")
    except InterfereError as error:
        return _report(error, as_json=as_json)
    except ModuleNotFoundError as error:
        return _report(missing_extra(error), as_json=as_json)
    except KeyboardInterrupt:
        return 130
    return 0


def _report(error: InterfereError, *, as_json: bool) -> int:
    """Say it on standard error, and with --json as the one document on standard output too."""
    typer.echo(f"error: {error}", err=True)
    if as_json:
        document: dict[str, Any] = {"code": error.code, "what": error.what, "remedy": error.remedy}
        document["value"] = None if error.value is None else str(error.value)
        if isinstance(error, InvalidInputError):
            document["violations"] = [
                {"field": v.field, "what": v.what, "value": v.value, "remedy": v.remedy} for v in error.violations
            ]
        typer.echo(json.dumps({"error": document}, indent=2))
    return 1
