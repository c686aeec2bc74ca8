"""Ask a server beside which jobs a new job should run first."""

import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interfere.commands.options import (
    DEFAULT_WORK,
    KnownDeviceType,
    Mode,
    Target,
    Work,
    connect,
    note_mistyped_workloads,
)
from interfere.commands.output import JsonFlag, emit
from interfere.commands.profile.console import Core, measuring_progress
from interfere.errors import InvalidInputError
from interfere.records.predictions import DEFAULT_PROBES
from interfere.reports.document import Column, Part, Sentence, Table, Tone, text_table
from interfere.reports.numbers import fixed, percent
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

if TYPE_CHECKING:
    from interfere.client import PolicyClient
    from interfere.data.tables import Table as MeasuredJobs
    from interfere.records import PairMeasurement, ProbeAnswer

app = typer.Typer(add_completion=False)
PROBE_S = 1.0  # length of a reported window: its slowdown is the mean of all slices
MEASURED = ("victim", "beside", "slowdown", "the server")


@app.command()
def probe(
    job: Annotated[str, typer.Argument(help="Workload; with --measure a built-in name or module:factory.")],
    candidate: Annotated[
        list[str] | None,
        typer.Option(help="Candidate (repeatable). Default: the workloads of the model's training."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=16, help="Number of probes.")] = DEFAULT_PROBES,
    device_type: KnownDeviceType = "",
    mode: Mode = DEFAULT_MODE,
    measure: Annotated[
        bool, typer.Option("--measure", help="Run the probes on a core of this machine, and report them to the server.")
    ] = False,
    core: Core = None,
    work: Work = DEFAULT_WORK,
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask a server beside which jobs a new one should run first: what teaches most about all its other pairs.

    A job of an unknown kind is predicted poorly; two or three short runs beside chosen others halve the error. Without
    --measure: run these pairs wherever your jobs run, and report both slowdowns (interfere observe).
    """
    folder = work / "tables" / "probes" / f"{job.replace(':', '-')}-{mode}"
    with connect(target) as client:
        if measure:
            client.register_profiles(_measure(folder / "alone", (job,), (), core, DEFAULT_MODE).jobs)
        candidates = candidate or (_runnable_workloads(client) if measure else [])
        try:
            answer = client.suggest_probes(job, neighbours=candidates, device_type=device_type, mode=mode, count=count)
        except InvalidInputError:
            note_mistyped_workloads(client, (job, *candidates))
            raise
        parts: list[Part] = [_table(answer), Sentence(_summary(job, answer))]
        document: dict[str, object] = {
            "job": job,
            "device_type": answer.device_type,
            "error_now": answer.error_now,
            "probes": [
                {"beside": each.neighbour, "gain": each.gain, "error_after": each.error_after} for each in answer.probes
            ],
        }
        if measure:
            beside = [each.neighbour for each in answer.probes]
            pairs = tuple((job, neighbour) for neighbour in beside)
            rows = _report(client, _measure(folder / "pairs", (job, *beside), pairs, core, mode).pairs)
            document["measured"] = [dict(zip(MEASURED, row, strict=True)) for row in rows]
            parts += [text_table("", MEASURED, rows), Sentence(f"wrote {folder}", tone=Tone.NOTE)]
    emit(document, parts, as_json=as_json)


def _runnable_workloads(client: "PolicyClient") -> list[str]:
    """Return the built-in workloads that the server has profiles of. Raises NotFoundError where it has none."""
    from interfere.errors import NotFoundError
    from interfere.profiling.workloads import BUILT_IN

    known = {summary.workload for summary in client.list_profiles()}
    runnable = [name for name in BUILT_IN if name in known]
    if not runnable:
        raise NotFoundError(
            "the server knows no workload that can run here",
            value=", ".join(sorted(known)[:5]) or "no profiles",
            remedy="leave --measure out, run the pairs where your jobs run, and report them: interfere observe",
        )
    return runnable


def _measure(
    folder: Path, workloads: tuple[str, ...], pairs: tuple[tuple[str, str], ...], core: int | None, mode: SharingMode
) -> "MeasuredJobs":
    """Measure workloads alone and pairs of them on a core. Raises UnfitError for a workload that fails."""
    from interfere.profiling.measurer import measure
    from interfere.profiling.workload_profiler import WorkloadConfig

    campaign = "cpu-probes" if pairs else "cpu-solo"
    config = WorkloadConfig(out=folder, workloads=workloads, pairs=pairs, mode=mode, core=core, campaign=campaign)
    with measuring_progress(config.out) as report:
        return measure(config, report).table


def _report(client: "PolicyClient", pairs: "tuple[PairMeasurement, ...]") -> list[tuple[str, str, str, str]]:
    """Report each usable measurement as a window of one job beside the other; return what became of each."""
    from interfere.records import PairStatus, Progress

    now_s, run = time.time(), secrets.token_hex(4)
    usable = [pair for pair in pairs if pair.status is PairStatus.OK]
    windows = [
        Progress(
            observation_id=f"probe-{run}-{k}",
            job_id=f"probe-{pair.victim}",
            workload=pair.victim,
            company=(pair.neighbour,),
            device_type=pair.device_type,
            mode=pair.mode,
            start_s=now_s - PROBE_S,
            end_s=now_s,
            slowdown=pair.slowdown,
        )
        for k, pair in enumerate(usable)
    ]
    answers = iter(client.observe(windows) if windows else ())
    rows = []
    for pair in pairs:
        if pair.status is not PairStatus.OK:
            rows.append((pair.victim, pair.neighbour, "–", f"not reported: {pair.reason or pair.status.value}"))
            continue
        told = next(answers)
        rows.append((pair.victim, pair.neighbour, f"{pair.slowdown:.2f} ×", told.reason or told.result.value))
    return rows


def _table(answer: "ProbeAnswer") -> Table:
    rows = tuple((str(k), each.neighbour, each.gain, each.error_after) for k, each in enumerate(answer.probes, start=1))
    columns = (
        *map(Column, ("", "beside")),
        Column("removes of what is not known", percent()),
        Column("then speeds are known to ±", fixed(3)),
    )
    return Table(title="", columns=columns, rows=rows)


def _summary(job: str, answer: "ProbeAnswer") -> str:
    """Return in words what the probes are expected to do."""
    last = answer.probes[-1].error_after if answer.probes else answer.error_now
    return (
        f"the speeds of {job} and its neighbours on {answer.device_type}: known to ± {answer.error_now:.3f} now, "
        f"to ± {last:.3f} after {len(answer.probes)} probes (expected, of 1 = alone)"
    )
