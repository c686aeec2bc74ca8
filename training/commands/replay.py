"""Replay a trace of jobs under several policies: what sharing would have done to it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from interfere.commands.output import JsonFlag, emit, progress_note
from interfere.sharing_modes import SharingMode

app = typer.Typer(add_completion=False)


INTERRUPTED = 130  # exit code, as a shell has it


class Predict(StrEnum):
    """What sharing is decided by; the truth moves the clock in any case."""

    TRUTH = "truth"
    MODEL = "model"
    MEAN = "mean"


class Unknown(StrEnum):
    """What jobs do whose workload the truth lacks."""

    ALONE = "alone"
    MEDIAN = "median"
    WORST = "worst"


@app.command()
def replay(
    trace: Annotated[Path, typer.Argument(help="Folder of a trace (`interfere data import helios` or `philly`).")],
    truth: Annotated[
        str, typer.Option(help="Table whose slowdowns are the truth: a folder, or a table of the workspace or shipped.")
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="ORDER[+easy or +first-fit][+drop][+greedy or +matching], ORDER one of fifo, sjf, qssf, tiresias, "
            "srtf, edf, laxity (+easy: Slurm's backfill with a reservation; +first-fit has none; +drop gives up "
            "jobs whose deadline is infeasible); ORDER+rematch+greedy or ORDER+rematch+matching "
            "(running jobs are re-paired every slice); slots[+greedy or +matching]; or policy, "
            "policy-deadlines, policy-no-promises (the server decides everything), each with -alone for no sharing; "
            "+seats-N last for more than two jobs on a device. Repeatable. Default: sixteen without deadlines, sixteen "
            "with --deadlines.",
            show_default=False,
        ),
    ] = None,
    predict: Annotated[Predict, typer.Option(help="What sharing is decided by.")] = Predict.TRUTH,
    hide: Annotated[
        float | None,
        typer.Option(help="With --predict model: share of pairs that it never saw. Default: 0.3.", show_default=False),
    ] = None,
    online: Annotated[
        bool, typer.Option("--online", help="Correct predictions by what the replayed jobs measured so far.")
    ] = False,
    error: Annotated[
        float, typer.Option(min=0.0, help="With --predict truth: standard error of log slowdown put on it.")
    ] = 0.0,
    cap: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            help="Largest predicted slowdown of jobs that share. Default: none, as the server has it.",
            show_default=False,
        ),
    ] = None,
    guest_may_stay: Annotated[
        bool | None,
        typer.Option(
            "--guest-may-stay/--guest-ends-first",
            help="May a job join one that is expected to end before it? Only where no job is stopped. Default: yes, as "
            "the server has it.",
            show_default=False,
        ),
    ] = None,
    most_shared_gpus: Annotated[
        int | None, typer.Option(min=1, help="Jobs on more devices than this never share.")
    ] = None,
    seats: Annotated[
        list[int] | None,
        typer.Option(
            min=2,
            max=48,
            help="Jobs that may share a device, for policy and for queues with +matching that stop and drop no job. "
            "Repeatable. Groups that the truth lacks are composed of pairs: replayed by their sum and by their "
            "product. Default: 2.",
            show_default=False,
        ),
    ] = None,
    fill: Annotated[
        bool, typer.Option("--fill", help="Let a model stand in for pairs that the truth lacks; else they never share.")
    ] = False,
    unknown: Annotated[
        Unknown,
        typer.Option(
            help="What jobs do whose workload the truth lacks: run alone, or share as the median or the worst measured "
            "pair (a scenario; they never count as covered)."
        ),
    ] = Unknown.ALONE,
    device_type: Annotated[str, typer.Option(help="Of the truth, where the table has several.")] = "",
    mode: Annotated[
        SharingMode | None, typer.Option(help="Sharing mode of the truth, where the table has several.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="Devices, for a trace that does not say.")] = None,
    per_node: Annotated[
        int | None, typer.Option(min=1, help="With --gpus: devices a node. Default: 8.", show_default=False)
    ] = None,
    any_node: Annotated[
        bool | None,
        typer.Option(
            "--any-node/--whole-nodes",
            help="Jobs take free devices of any nodes, or wait for as few nodes as they can do with. Default: whole "
            "nodes; any node with --deadlines.",
            show_default=False,
        ),
    ] = None,
    load: Annotated[float | None, typer.Option(min=0.01, help="Offered load: arrivals are stretched to it.")] = None,
    draws: Annotated[
        int,
        typer.Option(
            min=0,
            help="Further traces, of the recorded days redrawn: the spread is over them. They narrow no interval of a "
            "mean: only more recorded days do.",
        ),
    ] = 0,
    tie_draws: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Further orders of jobs submitted in one second: shown as a range. Default: 2; 0 with --deadlines.",
            show_default=False,
        ),
    ] = None,
    checkpoint_s: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Work that every stop costs a job. Default: 62, which Tiresias measured on average; 60 with "
            "--deadlines.",
            show_default=False,
        ),
    ] = None,
    slice_s: Annotated[
        float, typer.Option(min=0.0, help="Decide about sharing at most this often (not in tiresias, srtf).")
    ] = 0.0,
    duration_error: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=2.0,
            help="Standard error of the logarithm of the run times that policies are told; 0.3 is off by a third.",
        ),
    ] = 0.0,
    shuffle_ties: Annotated[
        bool, typer.Option("--shuffle-ties", help="Jobs of one second come in an order drawn by the seed.")
    ] = False,
    deadlines: Annotated[
        str | None,
        typer.Option(
            help="Give jobs deadlines and the cluster idle edge devices: tight, usual or loose (drawn with --seed), or "
            "a file of draws."
        ),
    ] = None,
    added: Annotated[
        bool, typer.Option("--added", help="With --deadlines: the edge is half as many nodes more, not half of them.")
    ] = False,
    taken: Annotated[
        bool, typer.Option("--taken", help="With --deadlines: edge nodes are taken back at random, at 5 min notice.")
    ] = False,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            help="Seed of what is drawn: orders of ties, redrawn days, hidden pairs, errors of beliefs and run times, "
            "deadlines. The same seed and files give the same answer.",
        ),
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for report.html, jobs.parquet, runs.csv, and with --deadlines deadlines.json.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Replay a trace of jobs under several policies: what sharing would have done to it.

    Every policy gets the same order, estimates and rights to stop jobs with sharing off and on. Worlds that are offered
    more than they can serve are reported apart. With --deadlines, policies are compared by the deadlines they meet. An
    option that would change nothing is refused. Interrupted (Ctrl-C), it reports the traces that are done and ends
    with exit code 130.
    """
    from interfere.config import load_settings
    from interfere.data.loading import table_folder
    from interfere.training.replay.answer import answer_question
    from interfere.training.replay.files import replay_facts, write_report
    from interfere.training.replay.question import Question
    from interfere.training.replay.report import replay_document

    question = Question(
        trace=trace,
        truth=table_folder(truth, load_settings().work),
        policies=tuple(policy or ()),
        predict=predict.value,
        hide=hide,
        online=online,
        error=error,
        cap=cap,
        fill=fill,
        unknown=unknown.value,
        device_type=device_type,
        mode=mode or "",
        gpus=gpus,
        per_node=per_node,
        whole_nodes=None if any_node is None else not any_node,
        load=load,
        draws=draws,
        tie_draws=tie_draws,
        checkpoint_s=checkpoint_s,
        slice_s=slice_s,
        duration_error=duration_error,
        seed=seed,
        guest_may_stay=guest_may_stay,
        most_shared_gpus=most_shared_gpus,
        seats=tuple(dict.fromkeys(seats or ())),
        shuffle_ties=shuffle_ties,
        deadlines=deadlines,
        added=added,
        taken=taken,
    )
    answer = answer_question(question, report=progress_note)
    written = write_report(out, answer) if out is not None else []
    emit(replay_facts(answer, written), replay_document(answer), as_json=as_json)
    for path in written:
        progress_note(str(path))
    if answer.study.interrupted:
        raise typer.Exit(INTERRUPTED)
