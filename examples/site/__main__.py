"""A site in a box: jobs that really run on a real Slurm, under five ways to decide who shares a device.

    python -m examples.site [--quick] [--folder FOLDER] [--repetitions N] [--trace FOLDER] [--arms a,b] [--load L]

Two cores of this machine are two GPUs. Every run of an arm is a file of the folder: a run that was interrupted is run
again, one that is there is not. The load is fixed before the first run. Needs Slurm, root, and control groups.
"""

import json
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from examples.site.arms import WORKSPACE, Arm, RunSettings, WorkloadCost, measured_costs, run_arm
from examples.site.replaying import SiteReplay, replayed_means, slowdowns_met
from examples.site.report import site_report
from examples.site.slurm_cluster import PACKAGES, PROGRAMS
from examples.site.stream import StreamSettings, stream_of
from interfere.commands.output import JsonFlag, emit, progress_note
from interfere.data.loading import load_table
from interfere.errors import InterfereError, InvalidInputError, UnfitError
from interfere.file_writing import write_text
from interfere.profiling.affinity import allowed_cores, busiest_foreign_processes
from interfere.profiling.workloads import EIGHT
from interfere.reports.text_forms import json_document

FULL = StreamSettings(jobs=60, load=1.1, workloads=EIGHT, gang_workload="resnet-train")
QUICK = StreamSettings(
    jobs=5, load=2.0, workloads=("request-server", "spectrogram"), gang_workload="rl-rollout", longest_s=4.0
)
MEASURE_S, QUICK_MEASURE_S = 3.0, 0.5  # of each workload alone


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Five short jobs, once: does everything work?")] = False,
    folder: Annotated[Path, typer.Option(help="Folder of the runs; what is there is not run again.")] = Path(
        "interfere-work/site"
    ),
    repetitions: Annotated[int, typer.Option(help="Streams of jobs; every arm gets each.", min=1)] = 5,
    arms: Annotated[str, typer.Option(help="Arms to run, separated by commas.")] = ",".join(Arm),
    trace: Annotated[Path | None, typer.Option(help="Trace of `interfere data import`. Default: drawn jobs.")] = None,
    load: Annotated[
        float | None, typer.Option(help="Work offered, as a share of what both cores can do. Default: 1.1.", min=0.1)
    ] = None,
    table: Annotated[str, typer.Option(help="Measured pairs for the replay beside the runs.")] = "cpu",
    weight: Annotated[
        int, typer.Option(help="Of the site against any other program that wants its cores.", min=1, max=256)
    ] = 1,
    as_json: JsonFlag = False,
) -> None:
    """Run every arm on every stream of jobs, and report what happened beside what was predicted."""
    for number in (signal.SIGTERM, signal.SIGINT):  # a shell starts background jobs with Ctrl-C ignored
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # the daemons of the run end with it
    try:
        chosen = [Arm(name) for name in arms.split(",")]
    except ValueError as error:
        raise InvalidInputError("no such arm", value=error, remedy=f"one of {', '.join(Arm)}") from None
    if missing := [name for name in PROGRAMS if not shutil.which(name)]:
        raise UnfitError("Slurm is missing", value=", ".join(missing), remedy=f"apt-get install {PACKAGES}")
    cores = allowed_cores()[:2]
    if len(cores) < 2:
        raise UnfitError("the site needs two cores", value=f"allowed: {cores}", remedy="allow this process a second")
    for process in busiest_foreign_processes():
        progress_note(f"{process} takes time on the cores of the site: its time is subtracted, its caches are not")
    preset = QUICK if quick else FULL
    settings = replace(preset, trace=trace and trace.resolve(), load=load or preset.load)
    folder = folder.resolve()
    costs = _costs(folder, settings, cores, QUICK_MEASURE_S if quick else MEASURE_S)
    documents = []
    for repetition in range(1 if quick else repetitions):
        jobs = stream_of(settings, repetition)
        for k in range(len(chosen)):  # each repetition begins with another arm
            arm = chosen[(k + repetition) % len(chosen)]
            path = folder / f"{arm}-{repetition}.json"
            if not path.exists():
                begin_s = time.monotonic()
                before = _learned(folder, arm, repetition - 1) if arm.is_advised and repetition else None
                run = RunSettings(folder=folder / "now", cores=cores, costs=costs, weight=weight, workspace=before)
                document = {**run_arm(arm, jobs, run), "repetition": repetition}
                if arm.is_advised:
                    shutil.rmtree(_learned(folder, arm, repetition), ignore_errors=True)
                    shutil.copytree(run.folder / WORKSPACE, _learned(folder, arm, repetition))
                write_text(path, json.dumps(document) + "\n")
                progress_note(f"{arm}, repetition {repetition}: {time.monotonic() - begin_s:.0f} s")
            documents.append(json.loads(path.read_text()))
    numbers = sorted({each["repetition"] for each in documents})
    recorded = [json.loads(path.read_text()) for arm in Arm for path in sorted(folder.glob(f"{arm}-*.json"))]
    measured = load_table(table)
    by_table = SiteReplay.of(settings, costs, measured, recorded)
    replayed = {f"by the table {table}": replayed_means(by_table, numbers, chosen)}
    if len(numbers) > 1:
        by_met = SiteReplay.of(settings, costs, measured, recorded, slowdowns_met(recorded))
        replayed["by pairs met in other streams"] = replayed_means(by_met, numbers, chosen)
    report = site_report(documents, replayed, settings, quick=quick)
    emit(json_document(report), report, as_json=as_json)


def _learned(folder: Path, arm: Arm, repetition: int) -> Path:
    """Return the folder of what the server of an arm knows after a repetition."""
    return folder / "learned" / f"{arm}-{repetition}"


def _costs(folder: Path, settings: StreamSettings, cores: Sequence[int], seconds: float) -> dict[str, WorkloadCost]:
    """Return what the workloads take alone, measured once for all runs of a folder. Raises InvalidInputError for a
    folder with runs of other settings."""
    path, key = folder / "alone.json", json.loads(json.dumps(asdict(settings), default=str))
    if path.exists():
        written: dict[str, Any] = json.loads(path.read_text())
        if written["settings"] != key:
            raise InvalidInputError("the folder has runs of other settings", value=folder, remedy="give another one")
        return {name: WorkloadCost(**cost) for name, cost in written["costs"].items()}
    names = tuple(dict.fromkeys((*settings.workloads, settings.gang_workload)))
    costs = measured_costs(names, cores, folder, seconds)
    document = {"settings": key, "costs": {name: asdict(cost) for name, cost in costs.items()}}
    write_text(path, json.dumps(document, indent=1) + "\n")
    return costs


if __name__ == "__main__":
    try:
        typer.run(main)
    except InterfereError as error:
        raise SystemExit(f"site: {error.one_line}") from None
