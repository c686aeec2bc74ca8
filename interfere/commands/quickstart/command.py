"""Try everything on this machine: profile, train, serve, match, and run the chosen pairing for real."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit, err, out

if TYPE_CHECKING:
    from collections.abc import Mapping

app = typer.Typer(add_completion=False)


@app.command()
def quickstart(
    work: Work = DEFAULT_WORK,
    full: Annotated[bool, typer.Option("--full", help="Twelve workloads instead of eight; twice as long.")] = False,
    longer: Annotated[
        int, typer.Option(min=1, help="Measure so many times as long; intervals shrink with its square root.")
    ] = 1,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the draws: which pairs are held out, which random pairing is run.")
    ] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Profile, train, serve, match, and run the chosen and a random pairing for real. About seven minutes.

    Ended before it is done and started again, it goes on. At its end stands a page: WORK/runs/quickstart/page.html.
    """
    from interfere.commands.quickstart.document import Findings, quickstart_document
    from interfere.commands.quickstart.run import RunFolder, RunSettings, run_quickstart
    from interfere.commands.quickstart.stages import Stages, check_ready
    from interfere.profiling.workloads import expand_names
    from interfere.reports.html_page import write_html_page
    from interfere.reports.terminal import TerminalDocument

    check_ready(work)
    workload_set = "twelve" if full else "eight"
    settings = RunSettings(workload_set=workload_set, workloads=expand_names(workload_set), seed=seed, longer=longer)
    stages = Stages(work=work, longer=longer)
    folder = RunFolder(stages.folder, stages.tables, settings)
    page = stages.folder / "page.html"

    def write_page(findings: Findings) -> Path:
        return write_html_page(page, quickstart_document(findings))

    findings = run_quickstart(stages, folder, settings, write_page)
    report = folder.finish(findings.document())
    console = err if as_json else out  # with --json, standard output is for the document alone
    console.print()
    console.print(TerminalDocument(quickstart_document(findings)))
    if as_json:
        emit(findings.document(), "", as_json=True)
        return
    lines = f"\npage: {page.resolve().as_uri()}\nreport: {report}\ntables, models and runs: {work}/"
    out.print(lines, _next_commands(work, findings.training), sep="\n", soft_wrap=True)


def _next_commands(workspace: Path, training: "Mapping[str, Any]") -> str:
    work_option = "" if str(workspace) == "interfere-work" else f" --work {workspace}"
    model_option = "" if training["is_champion"] else f" --model {training['folder']}"  # a champion is the default
    return (
        "\nnext, to copy:\n"
        f"  interfere serve{model_option}{work_option}\n"
        "  interfere match --example\n"
        f"  interfere ui{work_option}"
    )
