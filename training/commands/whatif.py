"""Say what sharing GPUs would do to a cluster's jobs."""

from pathlib import Path
from typing import Annotated

import typer

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag
from interfere.training.commands.options import EngineName, Workers
from interfere.training.commands.study import DeviceType, Draws, Gpus, Model, Out, Settings, Table, ask_study, given

app = typer.Typer(add_completion=False)


@app.command()
def whatif(
    trace: Annotated[Path, typer.Argument(help="Folder of a trace (`interfere data import sacct`, pods, csv ...).")],
    table: Table = None,
    model: Model = None,
    name_map: Annotated[
        Path | None,
        typer.Option(
            "--workloads", help="CSV `pattern,workload`: which workload of the table a job is.", show_default=False
        ),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            help="Queue to compare sharing under, as `interfere replay --policy` names it. Repeatable; the first leads "
            "the report. Default: fifo-easy, qssf-easy, tiresias-first-fit; all: sjf-easy and srtf-first-fit too.",
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
    draws: Draws = 0,
    device_type: DeviceType = "",
    gpus: Gpus = "",
    settings: Settings = None,
    workers: Workers = 1,
    engine: EngineName = "",
    out: Out = None,
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
    from interfere.sim.schedulers.records import ALL_QUEUES

    entries = given(
        question="whatif",
        trace=trace,
        table=table,
        model=model,
        name_map=name_map,
        schedulers=tuple(each.label for each in ALL_QUEUES) if queue == ["all"] else tuple(queue or ()),
        loads=tuple(load or ()),
        caps=tuple(cap or ()),
        seats=tuple(seats or ()),
        draws=draws,
        device_type=device_type,
        gpus=gpus,
    )
    ask_study(entries, settings, workers=workers, engine=engine, out=out, work=work, as_json=as_json)
