"""Measure your own jobs, train on them, and say what is known."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit, keeps_when_interrupted, progress_note
from interfere.reports.document import Column, Part, Sentence, Table
from interfere.reports.numbers import DURATION, TIMES, fixed
from interfere.sharing_modes import DEFAULT_MODE, SharingMode
from interfere.training.commands.options import Seed, Tracking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from interfere.training.onboarding import Measured, OnboardedPair
    from interfere.training.pipeline import TrainingResult

app = typer.Typer(add_completion=False)


@app.command()
@keeps_when_interrupted("measurements and finished folds are kept in the workspace: the same command goes on from them")
def onboard(
    spec: Annotated[Path, typer.Option(help="TOML file of your commands, as for `profile command --spec`.")],
    device: Annotated[
        str,
        typer.Option(
            "--device-type",
            help="Device type. cpu-core: pinned to one core; with another name the environment decides where they run.",
        ),
    ] = "cpu-core",
    mode: Annotated[SharingMode, typer.Option(help="How the jobs share a device.")] = DEFAULT_MODE,
    budget: Annotated[str, typer.Option(help="Time for measuring, over all runs: 90s, 30m, 2h.")] = "30m",
    target: Annotated[
        float, typer.Option("--target-error", min=0, help="Stop at this expected error of speed; 0: never.")
    ] = 0.05,
    gpu: Annotated[int | None, typer.Option(min=0, help="Index of the GPU where there are several of a type.")] = None,
    pairs: Annotated[
        int | None, typer.Option("--max-pairs", min=1, help="At most so many pairs.", show_default=False)
    ] = None,
    table: Annotated[str, typer.Option("--name", help="Name of the table; one for each device.")] = "site",
    beside: Annotated[
        list[str] | None,
        typer.Option(
            help="A table to train on besides. Repeatable. Default: the shipped one on a CPU core, else none."
        ),
    ] = None,
    window_s: Annotated[float, typer.Option(min=0.5, help="Seconds of a window, or until it holds 20 steps.")] = 5.0,
    passes: Annotated[int, typer.Option(min=1, help="Blocks of every pair: one alone, both, the other alone.")] = 2,
    limit_s: Annotated[float, typer.Option(min=1, help="Seconds: longest start-up, and longest window.")] = 300.0,
    core: Annotated[int | None, typer.Option(min=0, help="The core to share. Default: the idlest.")] = None,
    device_name: Annotated[str, typer.Option(help="The very device of that type, for the table's card.")] = "",
    work: Work = DEFAULT_WORK,
    seed: Seed = 0,
    tracking: Tracking = None,
    as_json: JsonFlag = False,
) -> None:
    """Bring your own jobs in: measure them and the pairs that teach most, train, and say what is known.

    Each command runs alone, then batches of three pairs, each batch chosen by all that was measured before it. Killed
    and run again, it goes on where it stopped. Several devices: one call and one --name for each, at the same time if
    you like; --gpu says which of several GPUs.
    """
    from interfere.commands.profile.console import measuring_progress
    from interfere.commands.profile.programs import gpu_of
    from interfere.config import load_settings
    from interfere.profiling.programs.profiler import CommandConfig
    from interfere.profiling.programs.spec import pinned_to_gpu, read_commands
    from interfere.time_text import duration_s
    from interfere.training.onboarding import OnboardingConfig, believed_answers, measure_site, published_answers

    settings = load_settings(work=work)
    device = "cpu-core" if device == "cpu" else device
    out = settings.work / "tables" / table
    commands, found = read_commands(spec), gpu_of(device, gpu)
    config = OnboardingConfig(
        campaign=CommandConfig(
            out=out,
            commands=tuple(pinned_to_gpu(each, found.uuid) for each in commands) if found else commands,
            pairs=(),
            device_type=device,
            mode=mode,
            device_name=device_name or (found.provenance if found else ""),
            gpu_uuid=found.uuid if found else "",
            core=core,
            window_s=window_s,
            passes=passes,
            max_blocks=max(passes, 4),
            limit_s=limit_s,
            seed=seed,
        ),
        model=settings.served_folder,
        budget_s=duration_s(budget),
        target=target,
        max_pairs=pairs,
        seed=seed,
    )
    with measuring_progress(out) as report:
        measured = measure_site(config, report, progress_note)
    tables = [*(beside if beside is not None else ["cpu"] if device == "cpu-core" else []), str(out)]
    trained = _train(tables, settings.work, measured, seed, tracking)
    if trained is None:
        answers = believed_answers(measured.known)
    else:
        answers = published_answers(trained.folder, measured.known.jobs, device, mode)
    emit(_document(out, measured, answers, trained), _summary(measured, answers, trained), as_json=as_json)
    if measured.failures:
        raise typer.Exit(1)


def _train(
    tables: list[str], work: Path, measured: "Measured", seed: int, tracking: str | None
) -> "TrainingResult | None":
    """Train where there are enough pairs; without, return None after a note of what is missing."""
    from interfere.errors import UnfitError
    from interfere.training.dataset import find_table_folders
    from interfere.training.pipeline import train

    if not measured.measured_pairs:
        progress_note("no pair was measured: nothing to train on")
        return None
    try:
        return train(find_table_folders(tables, work), work, seed=seed, tracking=tracking, report=progress_note)
    except UnfitError as error:
        progress_note(f"no model was trained: {error}")
        return None


def _summary(measured: "Measured", answers: "Sequence[OnboardedPair]", trained: "TrainingResult | None") -> list[Part]:
    """Return the slowdowns and errors of every job as text for people."""
    from interfere.training.onboarding import suggestion_text

    rows = tuple(
        (job.name, job.step_time_s, job.suffered, job.caused, job.error) for job in measured.knowledge(answers)
    )
    columns = (
        Column("job"),
        Column("alone", DURATION),
        Column("slowed by others", TIMES),
        Column("slows others", TIMES),
        Column("known to ±", fixed(3)),
    )
    lines = [f"stopped: {measured.reason}", measured.assessments[-1].text()]
    lines += [f"not measured: {failure.name}: {failure.reason}" for failure in measured.failures]
    if trained is not None:
        role = "champion, which is served by default" if trained.registered.champion else "challenger"
        lines += [each.text(trained.champion) for each in trained.beliefs]
        lines.append(f"model: {trained.folder} (version {trained.version}), {role}")
        if not trained.registered.champion:
            lines.append(f"gate {trained.verdict.reason}; to serve it: interfere promote")
    if measured.next_pairs:
        lines.append("what would teach most now:")
        lines += [suggestion_text(suggestion) for suggestion in measured.next_pairs]
    return [Table(title="", columns=columns, rows=rows), *map(Sentence, lines)]


def _document(
    out: Path, measured: "Measured", answers: "Sequence[OnboardedPair]", trained: "TrainingResult | None"
) -> dict[str, Any]:
    return {
        "table": str(out),
        "stopped": measured.reason,
        "jobs": [asdict(job) for job in measured.knowledge(answers)],
        "pairs": [asdict(answer) for answer in answers],
        "assessments": [asdict(each) for each in measured.assessments],
        "next_pairs": [asdict(suggestion) for suggestion in measured.next_pairs],
        "failures": [asdict(failure) for failure in measured.failures],
        "model": trained
        and {
            "folder": str(trained.folder),
            "version": trained.version,
            "champion": trained.registered.champion,
            "beliefs": [asdict(each) for each in trained.beliefs],
        },
    }
