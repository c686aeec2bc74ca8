"""Say what sharing GPUs would do to a cluster: a trace and slowdowns in; gains with intervals and a page out."""

from pathlib import Path
from typing import Annotated

import typer

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit, progress_note
from interfere.sharing_modes import SharingMode
from interfere.training.commands.replay import INTERRUPTED, Unknown

app = typer.Typer(add_completion=False)


@app.command()
def whatif(
    trace: Annotated[Path, typer.Argument(help="Folder of a trace (`interfere data import sacct`, pods, csv ...).")],
    table: Annotated[
        str | None, typer.Option(help="Measured pairs: a folder, or the name of a table.", show_default=False)
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="Predicted slowdowns instead: a model folder, or cpu or gpu (shipped).", show_default=False),
    ] = None,
    name_map: Annotated[
        Path | None,
        typer.Option("--map", help="CSV `pattern,workload`: the table's names for the trace's.", show_default=False),
    ] = None,
    unknown: Annotated[
        Unknown,
        typer.Option(
            help="What jobs do whose workload the table lacks: run alone, or share as the median or worst measured "
            "pair (a scenario). The others are shown beside it."
        ),
    ] = Unknown.ALONE,
    device_type: Annotated[str, typer.Option(help="Of the slowdowns, where there are several.")] = "",
    mode: Annotated[
        SharingMode | None, typer.Option(help="Sharing mode of the slowdowns, where there are several.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="Devices, for a trace that does not say.")] = None,
    per_node: Annotated[int, typer.Option(min=1, help="With --gpus: devices a node.")] = 8,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            help="Queue to compare sharing under, as `interfere replay --policy` names it. Repeatable; the first leads "
            "the report. Default: fifo+easy, qssf+easy, sjf+easy, tiresias+first-fit, srtf+first-fit.",
            show_default=False,
        ),
    ] = None,
    load: Annotated[
        list[float] | None,
        typer.Option(
            help="Load to stretch arrivals to, beside the trace's own. Repeatable. Default: .5, .65, .75, .85, .95.",
            show_default=False,
        ),
    ] = None,
    cap: Annotated[
        list[float] | None,
        typer.Option(
            help="Largest predicted slowdown of jobs that share, beside none. Repeatable. Default: 1.25, 1.5.",
            show_default=False,
        ),
    ] = None,
    seats: Annotated[
        list[int] | None,
        typer.Option(
            help="Jobs that may share a device, beside two: by matching, under queues that stop no job. Repeatable. "
            "Groups that the table lacks are composed of pairs: by their sum and by their product.",
            show_default=False,
        ),
    ] = None,
    draws: Annotated[
        int,
        typer.Option(min=0, help="Further traces of redrawn days: the spread is over them; they narrow no interval."),
    ] = 0,
    pairs: Annotated[int, typer.Option(min=1, max=50, help="How many pairs to measure are named.")] = 5,
    workers: Annotated[int, typer.Option(min=1, help="Processes that replay.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the days that --draws draws again.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for whatif.html, and for results, from which an interrupted run goes on.", show_default=False
        ),
    ] = None,
    work: Work = DEFAULT_WORK,
    as_json: JsonFlag = False,
) -> None:
    """Say what sharing GPUs would do to your cluster.

    How much of its trace the slowdowns cover, what sharing would bring under each queue, cap, load and number of seats,
    with intervals, and which pairs to measure to know it better. Where next to nothing is covered it refuses and says
    what to do.
    Interrupted (Ctrl-C), it reports what is done, ends with exit code 130, and goes on from there when it is called
    with the same --out again.
    """
    from interfere.data.loading import table_folder
    from interfere.reports.html_page import write_html_page
    from interfere.sim.sweeps.running import in_processes, in_this_process
    from interfere.training.whatif import question as defaults
    from interfere.training.whatif.answer import answer_whatif
    from interfere.training.whatif.report import whatif_document, whatif_facts

    question = defaults.WhatIf(
        trace=trace,
        table=table_folder(table, work) if table is not None else None,
        model=model,
        name_map=name_map,
        unknown=unknown.value,
        device_type=device_type,
        mode=mode or "",
        gpus=gpus,
        per_node=per_node,
        queues=tuple(queue or defaults.QUEUES),
        loads=tuple(sorted(set(load or defaults.LOADS))),
        caps=tuple(sorted(set(cap or defaults.CAPS))),
        seats=tuple(sorted(set(seats or ()))),
        draws=draws,
        pairs=pairs,
        seed=seed,
    )
    engine = in_this_process if workers == 1 else in_processes(workers)
    answer = answer_whatif(question, engine=engine, folder=out, report=progress_note)
    document = whatif_document(answer)
    page = write_html_page(out / "whatif.html", document) if out is not None else None
    emit(whatif_facts(answer, page), document, as_json=as_json)
    if page is not None:
        progress_note(str(page))
    if answer.interrupted:
        raise typer.Exit(INTERRUPTED)
