"""Run the tasks of commands that use a shared folder as their engine."""

from pathlib import Path
from typing import Annotated

import typer

from interfere.commands.output import JsonFlag, emit, keeps_when_interrupted, progress_note

app = typer.Typer(add_completion=False)


@app.command()
@keeps_when_interrupted("the task at hand is given back, finished tasks are kept: start a worker again at any time")
def work(
    folder: Annotated[Path, typer.Argument(help="Folder that all machines see: --engine folder:PATH.")],
    idle_s: Annotated[
        float, typer.Option(min=0.0, help="End after so many seconds without a task: commands run several batches.")
    ] = 300.0,
    as_json: JsonFlag = False,
) -> None:
    """Run the tasks of trainings, evaluations and studies that use a shared folder as their engine.

    One task at a time: start as many of these as there are cores, on any machines, before or after the command that
    gives out the tasks, for example with `sbatch --array` or as an indexed Job. SIGTERM gives the task at hand back.
    """
    from interfere.study.engines.folder import work_in_folder

    run = work_in_folder(folder, idle_s=idle_s, report=progress_note)
    emit({"tasks": run}, f"{run} tasks", as_json=as_json)
