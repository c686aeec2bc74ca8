"""Train all models on measured tables, and publish the best."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interfere.commands.options import DEFAULT_WORK, Work, parse_pair
from interfere.commands.output import JsonFlag, emit, keeps_when_interrupted, progress_note
from interfere.reports.document import Part, Sentence, Tone
from interfere.training.commands.options import (
    Champion,
    Data,
    EngineName,
    Groups,
    Models,
    Seed,
    Tracking,
    Workers,
    notice_text,
)

if TYPE_CHECKING:
    from interfere.training.pipeline import TrainingResult

app = typer.Typer(add_completion=False)
SHOWN_LEGEND = (
    "MAE of speed, MAPE of slowdown, R² of log slowdown, mean Spearman per victim, regret of each job's best partner, "
    "coverage of the 90 % interval"
)


@app.command()
@keeps_when_interrupted("finished folds are kept in the workspace: the same command goes on from them")
def train(
    data: Data,
    work: Work = DEFAULT_WORK,
    seed: Seed = 0,
    champion: Champion = "",
    models: Models = "",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|MODEL",
            help="Settings that tune found, of another model to compare: its file, or the model tuned in this "
            "workspace. Repeatable.",
            show_default=False,
        ),
    ] = None,
    publish: Annotated[Path | None, typer.Option(help="Folder of the published model.", show_default=False)] = None,
    held_out: Annotated[
        list[str] | None,
        typer.Option(
            help="victim+neighbour: no model sees this pair, all are scored on it. Repeatable.", show_default=False
        ),
    ] = None,
    groups: Groups = None,
    notice: Annotated[
        Path | None,
        typer.Option(help="Text for the card: licence and citation of the tables.", show_default=False),
    ] = None,
    measured_pairs: Annotated[
        bool,
        typer.Option(
            "--measured-pairs/--no-measured-pairs",
            help="Publish the measured pairs too, which then answer for themselves.",
        ),
    ] = True,
    tracking: Tracking = None,
    workers: Workers = 1,
    engine: EngineName = "",
    as_json: JsonFlag = False,
) -> None:
    """Train all models on measured tables; publish and register the best.

    Interrupted, the same command goes on from the folds that are done.
    """
    from interfere.study.engines.catalogue import engine_of
    from interfere.training.dataset import find_table_folders
    from interfere.training.evaluation.scores import scores_by_model
    from interfere.training.models.catalogue import select_models
    from interfere.training.pipeline import train as train_models
    from interfere.training.tuning import read_settings

    result = train_models(
        find_table_folders(data, work),
        work,
        seed=seed,
        publish_to=publish,
        champion=champion,
        models={model.name: model for model in select_models(models)},
        found_settings=[read_settings(text, work) for text in settings or ()],
        notice=notice_text(notice),
        measured_pairs=measured_pairs,
        held_out=frozenset(parse_pair(text) for text in held_out or ()),
        groups=find_table_folders(groups or (), work),
        tracking=tracking,
        engine=engine_of(workers, engine),
        report=progress_note,
    )
    for line in _notes(result):
        progress_note(line)
    progress_note(f"published {result.folder} (version {result.version}); runs in {tracking or work / 'mlflow.db'}")
    shown: list[Part] = [scores_by_model(result.scores), Sentence(SHOWN_LEGEND, tone=Tone.NOTE)]
    emit(_document(result), shown, as_json=as_json)


def _notes(result: "TrainingResult") -> list[str]:
    from interfere.training.evaluation.candidates import GATE

    role = "champion" if result.registered.champion else "challenger"
    if result.verdict.passed and not result.registered.champion:
        role += "; make it champion with: interfere promote"
    how = "best" if result.selected_by == GATE else "requested"
    best = f"{how} model: {result.champion}; registered as version {result.registered.number}, {role}"
    sides = (side.text() for side in result.verdict.sides)
    return [best, f"gate {result.verdict.reason}", *sides, *result.warnings]


def _document(result: "TrainingResult") -> dict[str, Any]:
    from interfere.training.evaluation.scores import scores_document

    return {
        "model": result.champion,
        "selected_by": result.selected_by,
        "version": result.version,
        "folder": str(result.folder),
        "run_id": result.run_id,
        "registered_version": result.registered.number,
        "is_champion": result.registered.champion,
        "rows": result.rows,
        "worst_parity": result.worst_parity,
        "verdict": asdict(result.verdict),
        "warnings": list(result.warnings),
        "tables": [asdict(each) | {"effect": each.effect} for each in result.tables],
        "groups": [each.to_json() for each in result.compositions],
        "scores": scores_document(result.scores),
    }
