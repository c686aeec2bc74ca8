"""Replay a trace of jobs under several policies: what sharing would have done to it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from interfere.commands.output import JsonFlag, emit, progress_note
from training.commands.options import Seed

app = typer.Typer(add_completion=False)


class Predict(StrEnum):
    """What sharing is decided by; the truth moves the clock in any case."""

    TRUTH = "truth"
    MODEL = "model"
    MEAN = "mean"


@app.command()
def replay(
    trace: Annotated[Path, typer.Argument(help="Folder of a trace (`interfere data import helios` or `philly`).")],
    truth: Annotated[Path, typer.Option(help="Folder of the table whose slowdowns are the truth.")],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="ORDER[+backfill][+greedy or +matching], ORDER one of fifo, sjf, qssf, tiresias, srtf; or policy, "
            "which decides everything. Repeatable; eleven when left out."
        ),
    ] = None,
    predict: Annotated[Predict, typer.Option(help="What sharing is decided by.")] = Predict.TRUTH,
    hide: Annotated[float, typer.Option(help="With --predict model: share of pairs that it never saw.")] = 0.3,
    online: Annotated[
        bool, typer.Option("--online", help="Correct predictions by what the replayed jobs measured so far.")
    ] = False,
    error: Annotated[
        float, typer.Option(min=0.0, help="With --predict truth: standard error of log slowdown put on it.")
    ] = 0.0,
    cap: Annotated[float, typer.Option(min=1.0, help="Largest predicted slowdown of a pair.")] = 1.5,
    guest_may_stay: Annotated[
        bool,
        typer.Option(
            "--guest-may-stay",
            help="A job may join one that ends before it. Else, in a trace with gangs and where nobody is stopped, "
            "only who is expected to end first may.",
        ),
    ] = False,
    most_shared_gpus: Annotated[
        int | None, typer.Option(min=1, help="Jobs on more devices than this run without company.")
    ] = None,
    fill: Annotated[
        bool, typer.Option("--fill", help="Let a model stand in for pairs that the truth lacks; else they never share.")
    ] = False,
    device_type: Annotated[str, typer.Option(help="Of the truth, where the table has several.")] = "",
    mode: Annotated[str, typer.Option(help="Sharing mode of the truth, where the table has several.")] = "",
    gpus: Annotated[int | None, typer.Option(min=1, help="Devices, for a trace that does not say.")] = None,
    per_node: Annotated[int, typer.Option(min=1, help="With --gpus: devices a node.")] = 8,
    any_node: Annotated[
        bool, typer.Option("--any-node", help="Jobs take free devices of any nodes; else as few nodes as can be.")
    ] = False,
    load: Annotated[float | None, typer.Option(min=0.01, help="Offered load: arrivals are stretched to it.")] = None,
    draws: Annotated[
        int, typer.Option(min=0, help="Further traces, of the days redrawn: what intervals are made of.")
    ] = 0,
    checkpoint_s: Annotated[
        float, typer.Option(min=0.0, help="Work that every stop costs a job; Tiresias measured 62 s on average.")
    ] = 62.0,
    slice_s: Annotated[
        float, typer.Option(min=0.0, help="Think about sharing at most this often (not in tiresias, srtf).")
    ] = 0.0,
    shuffle_ties: Annotated[
        bool, typer.Option("--shuffle-ties", help="Jobs of one second come in an order drawn by the seed.")
    ] = False,
    deadlines: Annotated[
        str | None,
        typer.Option(
            help="Replay deadlines with idle edge devices instead: tight, usual or loose (drawn with --seed), or a "
            "file of draws; --policy then names schedulers of deadlines."
        ),
    ] = None,
    added: Annotated[
        bool, typer.Option("--added", help="With --deadlines: the edge is half as many nodes more, not half of them.")
    ] = False,
    taken: Annotated[
        bool, typer.Option("--taken", help="With --deadlines: edge nodes are taken back at random, at 5 min notice.")
    ] = False,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.html, jobs.parquet and runs.csv.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Replay a trace of jobs under several policies: what sharing would have done to it.

    Every policy gets the same order, estimates and rights to stop with sharing off and on. Worlds that are offered more
    than they can serve are reported apart. The policy room decides as in the server, with the clock of the replay.
    """
    from training.replay.question import Question, replayed
    from training.replay.report import document, summary, write_report

    question = Question(
        trace=trace,
        truth=truth,
        policies=tuple(policy or ()),
        predict=predict.value,
        hide=hide,
        online=online,
        error=error,
        cap=cap,
        fill=fill,
        device_type=device_type,
        mode=mode,
        gpus=gpus,
        per_node=per_node,
        whole_nodes=not any_node,
        load=load,
        draws=draws,
        checkpoint_s=checkpoint_s,
        slice_s=slice_s,
        seed=seed,
        guest_may_stay=guest_may_stay,
        most_shared_gpus=most_shared_gpus,
        shuffle_ties=shuffle_ties,
    )
    if deadlines is not None:
        from training.replay.deadline_question import deadlines_replayed

        found = deadlines_replayed(question, deadlines, out=out, added=added, taken=taken, report=progress_note)
        emit(found.document(), found.summary(), as_json=as_json)
        return
    answer = replayed(question, report=progress_note)
    made = write_report(out, answer) if out is not None else []
    emit(document(answer, made), summary(answer), as_json=as_json)
    for path in made:
        progress_note(str(path))
