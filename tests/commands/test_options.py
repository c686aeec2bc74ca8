"""One option name has one meaning, whichever command has it."""

from collections import defaultdict
from functools import partial
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from interfere.cli import load_command, registered_commands
from interfere.commands.options import with_options

MEANINGS = {
    "--block-s": "seconds",
    "--by": "label",
    "--cap": "slowdown",
    "--cell": "time",
    "--certificates": "tls.crt",
    "--champion": "model",
    "--column": "=column",
    "--config": "toml file",
    "--core": "core",
    "--count": "number|how many",
    "--data": "table",
    "--device": "device",
    "--device-name": "device",
    "--device-type": "device type",
    "--draws": "traces",
    "--dry-run": "nothing",
    "--engine": "where tasks run",
    "--every": "seconds between",
    "--exporter-delay": "export",
    "--file": "serve --callers",
    "--folds": "number of folds",
    "--fresh": "folder that holds measurements",
    "--gpu": "gpu",
    "--gpus": "devices",
    "--grace-s": "second",
    "--group-data": "groups",
    "--host": "address",
    "--interval": "seconds",
    "--job": "job",
    "--jobs": "commas",
    "--journal": "journal",
    "--json": "json document",
    "--latency-target": "longest time",
    "--limit": "newest",
    "--limit-s": "second",
    "--load": "load",
    "--max-blocks": "blocks",
    "--memory-gib": "memory",
    "--metric": "step_time_mean",
    "--min-window": "company",
    "--mode": "shar",
    "--model": "model",
    "--models": "comma-separated",
    "--name": "name of the table",
    "--once": "stop",
    "--out": "folder|file|page",
    "--passes": "blocks of every pair",
    "--port": "port",
    "--profiles": "profiles|jobs alone",
    "--progress": "step",
    "--quick": "block",
    "--reason": "why",
    "--risk": "probability",
    "--rounds": "campaigns, one after another",
    "--same-label": "labels that name the same job",
    "--scope": "scope|partition",
    "--seats": "jobs that may share a device",
    "--seed": "seed",
    "--server": "server",
    "--set": "field=value",
    "--shape": "matrix",
    "--since": "begin|later",
    "--solo-s": "alone",
    "--source": "who measured",
    "--spec": "toml file",
    "--static": "static",
    "--split": "have not seen",
    "--step": "step",
    "--step-time-s": "step",
    "--steps": "steps",
    "--store": "store",
    "--target": "address of the server",
    "--token-file": "token",
    "--tracking": "mlflow",
    "--value": "what",
    "--window": "seconds",
    "--window-s": "window",
    "--work": "workspace",
    "--workers": "processes",
    "--workload": "workload",
    "--workloads": "pattern,workload",
}
"""Every option that several commands have → what its help says in each of them; | separates kinds of one meaning."""


def options() -> dict[str, list[tuple[str, str]]]:
    """Return the (command, help) of every option by its name."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)

    def collect(command: Any, name: str) -> None:
        for inner, subcommand in getattr(command, "commands", {}).items():
            collect(subcommand, f"{name} {inner}")
        if hasattr(command, "commands"):
            return
        for parameter in command.params:
            if parameter.param_type_name == "option":
                found[max(parameter.opts, key=len)].append((name, parameter.help or ""))

    for name, entry in registered_commands().items():
        collect(load_command(entry), name)
    return found


SHARED = {name: uses for name, uses in options().items() if len(uses) > 1 and name != "--help"}


def test_every_shared_option_has_its_meaning_written_down() -> None:
    assert set(SHARED) == set(MEANINGS)


@pytest.mark.parametrize("name", sorted(SHARED))
def test_an_option_means_the_same_in_every_command(name: str) -> None:
    words = MEANINGS.get(name, "").split("|")
    others = {command: text for command, text in SHARED[name] if not any(word in text.lower() for word in words)}
    assert others == {}


def test_the_options_of_a_function_take_the_place_of_a_parameter() -> None:
    def area(width: Annotated[int, typer.Option(help="Width.")] = 2, height: Annotated[int, typer.Option()] = 3) -> int:
        return width * height

    def show(name: Annotated[str, typer.Argument()], size: int, *, loud: bool = False) -> None:
        typer.echo(f"{name} {size} {loud}")

    for make, defaults in ((area, 6), (partial(area, height=5), 10)):
        app = typer.Typer()
        app.command()(with_options("size", make)(show))
        assert CliRunner().invoke(app, ["room"]).output == f"room {defaults} False\n"
        assert CliRunner().invoke(app, ["room", "--width", "4", "--height", "1", "--loud"]).output == "room 4 True\n"
        assert CliRunner().invoke(app, ["room", "--size", "4"]).exit_code == 2
        assert CliRunner().invoke(app, ["room", "--width", "x"]).exit_code == 2
