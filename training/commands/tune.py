"""Search a model's settings with Optuna; the told errors are nested."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit, keeps_when_interrupted, progress_note
from interfere.errors import InvalidInputError
from interfere.features.pair import FeatureEncoder
from interfere.reports.document import Part, Sentence, Tone, text_table
from interfere.study.engine import Engine, Runner
from interfere.training.campaigns import training_rows
from interfere.training.commands.options import Data, EngineName, Seed, Tracking, Workers
from interfere.training.dataset import read_source_tables
from interfere.training.evaluation.cross_validation import FOLDS_FOLDER, Evaluation, evaluate_models
from interfere.training.models.catalogue import MODELS
from interfere.training.models.completed import settings_of
from interfere.training.publishing.tracking import prepare_workspace, require_access, tracked_run
from interfere.training.publishing.training_record import folds_table, training_name
from interfere.training.tuning import SPACES, FoundSettings, TunedModel, pair_digests, settings_file, studies_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """What tuning gave: settings, and errors on rows that took no part in choosing them."""

    model: str
    settings: Mapping[str, float]  # searched on all rows
    nested: tuple[Evaluation, ...]  # of the tuned model and of the settings that ship, by split
    tuned_error: float  # mean over inner folds of all splits, that the search minimised: biased by the choice
    trials: int
    pruned: int
    file: Path  # of the settings, for `train --settings`
    run_id: str


def tune_model(
    tables: Sequence[Path],
    work: Path,
    *,
    model: str,
    trials: int,
    seed: int = 0,
    splits: Sequence[str] = ("pair", "job"),
    folds: int | None = None,
    tracking: str | None = None,
    engine: Engine | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> TuningResult:
    """Search the settings of a model, and log the nested errors and every trial to MLflow.

    Raises InvalidInputError for a model without a space to search, and the errors of a training.
    """
    if model not in SPACES:
        raise InvalidInputError("nothing to tune in this model", value=model, remedy=f"one of {', '.join(SPACES)}")
    source = read_source_tables(tables)
    dataset = training_rows(source.tables, FeatureEncoder()).fitted
    prepare_workspace(work, tracking)
    require_access(work, tracking)
    tuned = TunedModel(model=MODELS[model], trials=trials, folder=studies_folder(work))

    # 1. The error of tuning: each fold has a search of its own, on its training rows.
    runner = Runner(engine=engine, folder=work / FOLDS_FOLDER, report=report)
    nested = evaluate_models(dataset, (MODELS[model], tuned), splits=splits, seed=seed, count=folds, runner=runner)
    # 2. The settings to use: a search on all rows.
    search = tuned.search(dataset, seed, report)
    settings = asdict(settings_of(search.best))  # type: ignore[call-overload]  # all settings are dataclasses
    found = list(search.trials())
    tuned_error = min((error for _, state, _, error in found if state == "complete"), default=math.nan)

    chosen = {name: settings[name] for name in SPACES[model]}
    file = settings_file(work, model)
    FoundSettings(model=model, settings=chosen, trials=trials, pairs=tuple(sorted(pair_digests(dataset)))).write(file)

    # 3. Log them.
    with tracked_run(work, training_name([table.name for table in source.tables], f"tune {model}:"), tracking) as run:
        run.log_tables(source, tables)
        run.log_parameters({"model": model, "seed": seed, "trials": trials, **settings})
        for each in nested:
            kind = "nested" if each.model == tuned.name else "as_shipped"
            run.log_metrics({f"error_{each.split}_{kind}": each.scores.mae})
        run.log_metrics({"minimised_error": tuned_error})
        run.log_table("folds.json", folds_table(nested))
        for number, state, parameters, error in found:
            run.log_finished_child(f"trial {number}", {**parameters, "state": state}, {"minimised_error": error})
    runner.delete_results()
    return TuningResult(
        model=model,
        settings=chosen,
        nested=tuple(nested),
        tuned_error=tuned_error,
        trials=len(found),
        pruned=sum(state == "pruned" for _, state, _, _ in found),
        file=file,
        run_id=run.id,
    )


app = typer.Typer(add_completion=False)


@app.command()
@keeps_when_interrupted("finished folds and trials are kept in the workspace: the same command goes on from them")
def tune(
    data: Data,
    model: Annotated[str, typer.Option(help="Model whose settings are searched: additive, gbdt, mlp or gp.")] = "gbdt",
    trials: Annotated[int, typer.Option(min=1, help="Trials of each search; the first has the shipped settings.")] = 30,
    split: Annotated[
        list[str] | None,
        typer.Option(help="What the models have not seen: pair, job, family; pair and job when left out."),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Number of folds of each split; each has a search of its own. Default: as a training.",
            show_default=False,
        ),
    ] = None,
    seed: Seed = 0,
    work: Work = DEFAULT_WORK,
    tracking: Tracking = None,
    workers: Workers = 1,
    engine: EngineName = "",
    as_json: JsonFlag = False,
) -> None:
    """Search a model's settings with Optuna; the told errors are nested.

    Each fold is predicted by settings that were searched on its training rows alone. Trials
    are kept in the workspace: interrupted, the same command goes on from them. Train with
    the settings: interfere train --settings MODEL.
    """
    from interfere.study.engines.catalogue import engine_of
    from interfere.training.dataset import find_table_folders

    result = tune_model(
        find_table_folders(data, work),
        work,
        model=model,
        trials=trials,
        seed=seed,
        splits=tuple(split or ("pair", "job")),
        folds=folds,
        tracking=tracking,
        engine=engine_of(workers, engine),
        report=progress_note,
    )
    rows = [(each.split, each.model, f"{each.scores.mae:.4f}", f"{each.scores.mae_se:.4f}") for each in result.nested]
    chosen = ", ".join(f"{name}={value:.4g}" for name, value in result.settings.items())
    parts: list[Part] = [
        text_table("", ("split", "model", "MAE", "±"), rows),
        Sentence(f"MAE of speed, nested. Settings from all rows: {chosen}", tone=Tone.NOTE),
        Sentence(
            f"{result.trials} trials, {result.pruned} pruned. The mean error over inner folds of pairs, jobs and "
            f"families, which the search minimised, ended at {result.tuned_error:.4f}: biased by the choice.",
            tone=Tone.NOTE,
        ),
    ]
    progress_note(f"settings in {result.file}; train with them: interfere train --settings {result.model}")
    document = {
        "model": result.model,
        "settings": dict(result.settings),
        "nested": [{"split": each.split, "model": each.model, "mae": each.scores.mae} for each in result.nested],
        "minimised_error": result.tuned_error,
        "trials": result.trials,
        "pruned": result.pruned,
        "file": str(result.file),
        "run_id": result.run_id,
    }
    emit(document, parts, as_json=as_json)
