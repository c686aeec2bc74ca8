"""Replay a trace of jobs under several scheduling policies."""

from pathlib import Path
from typing import Annotated

import typer

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag
from interfere.training.commands.options import EngineName, Workers
from interfere.training.commands.study import DeviceType, Draws, Gpus, Model, Out, Settings, Table, ask_study, given

app = typer.Typer(add_completion=False)


@app.command()
def replay(
    trace: Annotated[Path, typer.Argument(help="Folder of a trace (`interfere data import helios` or `philly`).")],
    table: Table = None,
    model: Model = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="QUEUE[-easy or -first-fit][-drop][-greedy or -matching][-one-gpu], QUEUE one of fifo, sjf, qssf, "
            "tiresias, srtf, edf (easy: Slurm's backfill with a reservation; first-fit has none; drop gives up "
            "jobs whose deadline is infeasible); QUEUE-rematch-matching (running jobs are re-paired every "
            "slice); slots[-greedy or -matching]; or policy, policy-deadlines, policy-no-promises (the server decides "
            "everything), each with -alone for no sharing. Repeatable. Default: sixteen without deadlines, fourteen "
            "with --deadlines.",
            show_default=False,
        ),
    ] = None,
    seats: Annotated[
        list[int] | None,
        typer.Option(
            help="Jobs that may share a device, for policy and for queues with matching that stop and drop no job. "
            "Repeatable. Groups that the table lacks are composed of pairs: replayed by their sum and by their "
            "product. Default: 2.",
            show_default=False,
        ),
    ] = None,
    predict: Annotated[
        str, typer.Option(help="What sharing is decided by: truth, model, or mean of all pairs.", show_default=False)
    ] = "",
    load: Annotated[float | None, typer.Option(min=0.01, help="Offered load: arrivals are stretched to it.")] = None,
    cap: Annotated[
        float | None,
        typer.Option(
            help="Largest predicted slowdown of jobs that share. Default: none, as the server has it.",
            show_default=False,
        ),
    ] = None,
    deadlines: Annotated[
        str | None,
        typer.Option(
            help="Give jobs deadlines and the cluster idle edge devices: tight, usual or loose (drawn with the seed)."
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
    """Replay a trace of jobs under several policies: what sharing would have done to it.

    Every policy gets the same order, estimates and rights to stop jobs with sharing off and on. Worlds that are offered
    more than they can serve are reported apart. With --deadlines, policies are compared by the deadlines they meet. A
    field that would change nothing is refused. Interrupted (Ctrl-C), it reports the traces that are done, ends with
    exit code 130, and goes on from there when it is called with the same --out again.
    """
    entries = given(
        trace=trace,
        table=table,
        model=model,
        schedulers=tuple(policy or ()),
        seats=tuple(seats or ()),
        predict=predict,
        loads=() if load is None else (load,),
        caps=() if cap is None else (cap,),
        deadlines=deadlines,
        draws=draws,
        device_type=device_type,
        gpus=gpus,
    )
    ask_study(entries, settings, workers=workers, engine=engine, out=out, work=work, as_json=as_json)
