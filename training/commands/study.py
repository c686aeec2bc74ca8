"""Answer a question about a job trace, from a TOML file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit, keeps_when_interrupted, progress_note
from interfere.training.commands.options import EngineName, Workers

app = typer.Typer(add_completion=False)

INTERRUPTED = 130  # exit code, as a shell has it

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="FIELD=VALUE of the study, such as hide=0.5 or whole_nodes=false; docs/whatif.md names all. Repeatable.",
        show_default=False,
    ),
]
Table = Annotated[
    str | None,
    typer.Option("--data", help="Table of measured pairs: a folder, or the name of a table.", show_default=False),
]
Model = Annotated[
    Path | None,
    typer.Option(help="Predicted slowdowns instead: a model folder, or cpu or gpu (shipped).", show_default=False),
]
DeviceType = Annotated[str, typer.Option(help="Device type of the slowdowns, where there are several.")]
Gpus = Annotated[
    str,
    typer.Option(help="Devices, for a trace that does not say; of several types: v100=48,p100=16.", show_default=False),
]
Draws = Annotated[
    int,
    typer.Option(min=0, help="Further traces of redrawn days: the spread is over them; they narrow no interval."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for the report, and for results, from which an interrupted run goes on.", show_default=False
    ),
]


@app.command()
def study(
    file: Annotated[Path, typer.Argument(help="TOML file of a study (docs/whatif.md).")],
    settings: Settings = None,
    workers: Workers = 1,
    engine: EngineName = "",
    out: Out = None,
    work: Work = DEFAULT_WORK,
    as_json: JsonFlag = False,
) -> None:
    """Ask a question about a trace of jobs, as a file says.

    The questions are replay, whatif, and classes of one's own. Interrupted (Ctrl-C), it reports what is done, ends with
    exit code 130, and goes on from there when it is called with the same --out again.
    """
    from interfere.study.study import read_study

    ask_study(read_study(file), settings, workers=workers, engine=engine, out=out, work=work, as_json=as_json)


def given(*, gpus: str = "", **options: object) -> dict[str, object]:
    """Return the options that were given: those that are not None, 0, or empty.

    `gpus`: a number of devices, or `type=number` for each of several types with commas between.
    """
    devices: dict[str, object] = {}
    if gpus:
        devices = {"gpus": int(gpus)} if gpus.strip().isdecimal() else {"gpus_by_type": tuple(gpus.split(","))}
    return devices | {name: value for name, value in options.items() if value not in (None, 0, "", ())}


def ask_study(
    entries: Mapping[str, object],
    settings: Sequence[str] | None,
    *,
    workers: int,
    engine: str,
    out: Path | None,
    work: Path,
    as_json: bool,
) -> None:
    """Run the study that these entries and settings describe, write its report, and print the answer."""
    from interfere.study.engine import Runner
    from interfere.study.engines.catalogue import engine_of
    from interfere.study.questions import ask
    from interfere.study.study import parse_setting, study_of, with_sources
    from interfere.training.study_models import TrainedModels

    asked = with_sources(study_of({**entries, **dict(map(parse_setting, settings or ()))}), work)
    folder = None if out is None else out / "results"
    runner = Runner(engine=engine_of(workers, engine), folder=folder, report=progress_note)
    kept = (
        "without --out no replay is kept: name a folder with --out to go on from finished replays"
        if folder is None
        else f"finished replays are kept in {folder}: the same command goes on from them"
    )
    with keeps_when_interrupted(kept):
        answer = ask(asked, TrainedModels(), runner)
    files = [] if out is None else answer.write(out)
    emit(answer.facts(files), answer.document(), as_json=as_json)
    for path in files:
        progress_note(str(path))
    if answer.interrupted:
        progress_note(f"interrupted; {kept}")
        raise typer.Exit(INTERRUPTED)
