"""Try everything on this machine: profile, train, serve, match, and run the chosen pairing for real."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interfere.commands.output import JsonFlag, emit, err, out
from interfere.strict_json import json_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from interfere.commands.quickstart.run import QuickstartResult

app = typer.Typer(add_completion=False)


@app.command()
def quickstart(
    work: Annotated[Path | None, typer.Option(help="Workspace. Default: ./interfere-work.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Twelve workloads instead of eight; twice as long.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Which pairs are held out, which random pairing is run.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Profile, train, serve, match, and run the chosen and a random pairing for real. Five to six minutes."""
    from interfere.commands.quickstart.run import run_quickstart
    from interfere.config import load_settings

    workspace = load_settings(work=work).work
    result = run_quickstart(workspace, "twelve" if full else "eight", seed)
    report = workspace / "runs" / "quickstart" / "report.json"
    report.write_text(json.dumps(json_value(result.document()), indent=2) + "\n", encoding="utf-8")
    _print_result(result, err if as_json else out)  # with --json, standard output is for the document alone
    if as_json:
        emit(result.document(), "", as_json=True)
        return
    out.print(f"\nreport: {report}\ntables, models and runs: {workspace}/", soft_wrap=True)
    out.print(_next_commands(workspace, result.training), soft_wrap=True)


def _print_result(result: "QuickstartResult", console: "Console") -> None:
    """Print the comparison, the chosen pairs, the difference from random, the model's errors and what it learnt."""
    from interfere.commands.quickstart.comparison import comparison_grid

    console.print()
    console.print(comparison_grid(result.comparison))
    lines = [f"  {a} shares a core with {b}" for a, b in result.chosen]
    source = "run again" if result.remeasured else "by the shipped table"
    difference = result.difference
    lines.append(
        f"\nchosen ({source}) minus random mean: {difference.value:+.3f} mean slowdown, 95 % interval "
        f"[{difference.lower:+.3f}, {difference.upper:+.3f}]: {difference.verdict}"
    )
    model, scores = result.training["model"], result.training["scores"]
    role = "champion" if result.training["is_champion"] else "challenger"
    errors = {split: by_model[model] for split, by_model in scores.items() if model in by_model}
    unseen = ", ".join(f"{split} {error['mae']:.3f} ({error['mape']:.1f} %)" for split, error in errors.items())
    lines.append(f"{role}: {model}, version {result.model_version}; error of speed (of slowdown) on unseen {unseen}")
    if result.learning:
        lines.append(
            "online: {applied} of {observations} observations applied; error on the chosen pairs "
            "{error_before:.1%} before, {error_after:.1%} after".format(**result.learning)
        )
    for line in lines:
        console.print(line, soft_wrap=True)


def _next_commands(workspace: Path, training: "Mapping[str, Any]") -> str:
    work_option = "" if str(workspace) == "interfere-work" else f" --work {workspace}"
    model_option = "" if training["is_champion"] else f" --model {training['folder']}"  # a champion is the default
    return (
        "\nnext, to copy:\n"
        f"  interfere serve{model_option}{work_option}\n"
        "  interfere match --example\n"
        f"  interfere ui{work_option}"
    )
