"""Search a model's settings with Optuna; the told errors are nested.

`TunedModel` is a model: whenever it is fitted, it searches the settings on its training rows alone, by the error over
folds of unseen pairs, jobs and families. So its cross-validated error is nested: the rows that are told about took no
part in any search. Law: the error that a search minimised is never told as the error of the model.

Every search is an Optuna study in a file of the workspace; an interrupted one goes on from its finished trials. A trial
is pruned where its errors in the folds so far are worse than those of the best trial in the same folds (Wilcoxon
signed-rank test).
"""

import hashlib
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit, progress_note
from interfere.errors import InvalidInputError
from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.score import speed
from interfere.reports.document import Part, Sentence, Tone, text_table
from interfere.study.engine import Engine, Runner
from interfere.training.campaigns import align_campaigns
from interfere.training.commands.options import Data, EngineName, Seed, Tracking, Workers
from interfere.training.dataset import Dataset, build_dataset, read_source_tables, require_min_pairs
from interfere.training.evaluation.candidates import INNER_FOLDS, TRAINING_SPLITS, possible_validations
from interfere.training.evaluation.cross_validation import (
    FOLDS_FOLDER,
    CrossValidation,
    Evaluation,
    FoldTask,
    evaluate_models,
    predict_fold,
)
from interfere.training.models.catalogue import MODELS
from interfere.training.models.completed import CompletedModel, settings_of
from interfere.training.models.protocols import FittedModel, ModelSettings
from interfere.training.publishing.tracking import prepare_workspace, require_access, tracked_run
from interfere.training.publishing.training_record import folds_table, training_name

if TYPE_CHECKING:
    import optuna


STARTUP_TRIALS = 5  # before the sampler models what is good
PRUNED_BELOW_P = 0.1  # Optuna's default; four folds, all of them worse, give p = .0625
STUDIES_FOLDER = "tune"  # of the workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The values that a number among the settings may take, both ends included."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def suggest(self, trial: "optuna.Trial", name: str) -> float:
        """Return a value for one trial."""
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


# About a decade around the settings that ship.
SPACES: Mapping[str, Mapping[str, Range]] = {
    "additive": {"shrinkage": Range(low=0.01, high=20.0, log=True)},
    "gbdt": {
        "rounds": Range(low=100, high=1200, log=True, whole=True),
        "learning_rate": Range(low=0.01, high=0.2, log=True),
        "leaves": Range(low=4, high=48, log=True, whole=True),
        "min_rows": Range(low=1, high=16, log=True, whole=True),
        "column_share": Range(low=0.05, high=0.9),
        "row_share": Range(low=0.5, high=1.0),
        "l2": Range(low=0.01, high=30.0, log=True),
    },
    "mlp": {
        "hidden": Range(low=16, high=64, log=True, whole=True),
        "identity_dropout": Range(low=0.1, high=0.6),
        "epochs": Range(low=100, high=600, log=True, whole=True),
        "learning_rate": Range(low=1e-3, high=2e-2, log=True),
        "weight_decay": Range(low=1e-3, high=0.3, log=True),
    },
    "gp": {
        "steps": Range(low=20, high=120, log=True, whole=True),
        "learning_rate": Range(low=0.05, high=0.4, log=True),
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedModel:
    """A model whose settings are searched on the rows that it is fitted on."""

    model: ModelSettings  # where the search starts: its first trial
    trials: int
    folder: str  # for Optuna's studies

    @property
    def name(self) -> str:
        """Return the name of the model that is tuned, marked as such."""
        return f"{self.model.name}-tuned"

    def fit(self, dataset: Dataset, seed: int) -> FittedModel:
        """Search the settings on these rows, and fit the best on all of them."""
        return self.search(dataset, seed).best.fit(dataset, seed)

    def search(self, dataset: Dataset, seed: int, report: Callable[[str], None] = lambda _: None) -> "Search":
        """Run the trials that the stored study of these rows lacks.

        Equal rows and seed give equal trials, also after an interruption.
        """
        import optuna

        optuna.logging.set_verbosity(logging.ERROR)
        validations = possible_validations(dataset, (self.model,), dict.fromkeys(TRAINING_SPLITS, INNER_FOLDS), seed)
        if not validations:
            return Search(study=None, model=self.model)  # too few rows to choose anything by
        study = self._study(validations)
        while (done := len(_finished(study))) < self.trials:
            study.sampler = optuna.samplers.TPESampler(seed=seed * 100_003 + done, n_startup_trials=STARTUP_TRIALS)
            trial = study.ask()
            try:
                study.tell(trial, self._error(trial, validations))
            except optuna.TrialPruned:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            report(f"trial {done + 1} of {self.trials}: lowest error so far {study.best_value:.4f}")
        return Search(study=study, model=self.model)

    def _study(self, validations: Sequence[CrossValidation]) -> "optuna.Study":
        import optuna
        from optuna.storages.journal import JournalFileBackend

        digest = hashlib.sha256("".join(each.digest() for each in validations).encode()).hexdigest()[:16]
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
            pruner = optuna.pruners.WilcoxonPruner(p_threshold=PRUNED_BELOW_P)
        study = optuna.create_study(
            study_name=f"{self.model.name} {digest}",
            storage=optuna.storages.JournalStorage(JournalFileBackend(f"{self.folder}/{self.model.name}-{digest}.log")),
            pruner=pruner,
            load_if_exists=True,
        )
        if not study.trials:
            start = asdict(settings_of(self.model))  # type: ignore[call-overload]  # all settings are dataclasses
            study.enqueue_trial({name: start[name] for name in SPACES[self.model.name]})
        return study

    def _error(self, trial: "optuna.Trial", validations: Sequence[CrossValidation]) -> float:
        """Return the mean over folds of the MAE of speed; each split has its first fold before any has its second."""
        import optuna

        space = SPACES[self.model.name]
        model = with_settings(self.model, {name: each.suggest(trial, name) for name, each in space.items()})
        errors: list[float] = []
        for k in range(max(len(each.folds) for each in validations)):
            for validation in (each for each in validations if k < len(each.folds)):
                tried, test = replace(validation, models=(model,)), validation.folds[k].test
                document = predict_fold((tried,), FoldTask(validation=0, fold=k))
                if model.name not in document:
                    continue  # too few training rows for this fold
                predicted = speed(np.asarray(document[model.name]["predicted_log"]))
                errors.append(float(np.abs(speed(validation.dataset.log_slowdown[test]) - predicted).mean()))
                trial.report(errors[-1], len(errors))
                if trial.should_prune():
                    raise optuna.TrialPruned
        return float(np.mean(errors)) if errors else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A finished search; without a study where the rows allow none."""

    study: "optuna.Study | None"
    model: ModelSettings

    @property
    def best(self) -> ModelSettings:
        """Return the model with the best settings."""
        return self.model if self.study is None else with_settings(self.model, self.study.best_params)

    def trials(self) -> Iterator[tuple[int, str, Mapping[str, float], float]]:
        """Yield number, state, settings and mean error of each finished trial; of a pruned one that of its folds."""
        for k, trial in enumerate(_finished(self.study) if self.study else ()):
            yield k, trial.state.name.lower(), trial.params, float(np.mean(list(trial.intermediate_values.values())))


def _finished(study: "optuna.Study") -> list["optuna.trial.FrozenTrial"]:
    """Return the trials that ended. One that was interrupted stays in the file, and counts for nothing."""
    from optuna.trial import TrialState

    return study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED))


def with_settings(model: ModelSettings, values: Mapping[str, Any]) -> ModelSettings:
    """Return the model with other settings."""
    if isinstance(model, CompletedModel):
        return replace(model, inner=with_settings(model.inner, values))
    return replace(model, **values)  # type: ignore[type-var]  # all settings are dataclasses


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """What tuning gave: settings, and errors on rows that took no part in choosing them."""

    model: str
    settings: Mapping[str, float]  # searched on all rows
    nested: tuple[Evaluation, ...]  # of the tuned model and of the settings that ship, by split
    tuned_error: float  # mean over inner folds of all splits, that the search minimised: biased by the choice
    trials: int
    pruned: int
    run_id: str


def tune_model(
    tables: Sequence[Path],
    work: Path,
    *,
    model: str,
    trials: int,
    seed: int = 0,
    splits: Sequence[str] = ("pair", "job"),
    folds: int | None = 3,
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
    measured_set = build_dataset(source.tables, FeatureEncoder())
    require_min_pairs(measured_set)
    dataset, _ = align_campaigns(measured_set)
    prepare_workspace(work, tracking)
    require_access(work, tracking)
    tuned = TunedModel(model=MODELS[model], trials=trials, folder=str((work / STUDIES_FOLDER).resolve()))

    # 1. The error of tuning: each fold has a search of its own, on its training rows.
    runner = Runner(engine=engine, folder=work / FOLDS_FOLDER, report=report)
    nested = evaluate_models(dataset, (MODELS[model], tuned), splits=splits, seed=seed, count=folds, runner=runner)
    # 2. The settings to use: a search on all rows.
    search = tuned.search(dataset, seed, report)
    settings = asdict(settings_of(search.best))  # type: ignore[call-overload]  # all settings are dataclasses
    found = list(search.trials())
    tuned_error = min((error for _, state, _, error in found if state == "complete"), default=math.nan)

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
        settings={name: settings[name] for name in SPACES[model]},
        nested=tuple(nested),
        tuned_error=tuned_error,
        trials=len(found),
        pruned=sum(state == "pruned" for _, state, _, _ in found),
        run_id=run.id,
    )


app = typer.Typer(add_completion=False)


@app.command()
def tune(
    data: Data,
    model: Annotated[str, typer.Option(help="Model whose settings are searched: additive, gbdt, mlp or gp.")] = "gbdt",
    trials: Annotated[int, typer.Option(min=1, help="Trials of each search; the first has the shipped settings.")] = 30,
    split: Annotated[
        list[str] | None,
        typer.Option(help="What the models have not seen: pair, job, family; pair and job when left out."),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Number of folds of each split; each has a search of its own.")] = 3,
    seed: Seed = 0,
    work: Work = DEFAULT_WORK,
    tracking: Tracking = None,
    workers: Workers = 1,
    engine: EngineName = "",
    as_json: JsonFlag = False,
) -> None:
    """Search a model's settings with Optuna; the told errors are nested.

    Each fold is predicted by settings that were searched on its training rows alone. Trials
    are kept in the workspace: interrupted, the same command goes on from them.
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
    document = {
        "model": result.model,
        "settings": dict(result.settings),
        "nested": [{"split": each.split, "model": each.model, "mae": each.scores.mae} for each in result.nested],
        "minimised_error": result.tuned_error,
        "trials": result.trials,
        "pruned": result.pruned,
        "run_id": result.run_id,
    }
    emit(document, parts, as_json=as_json)
