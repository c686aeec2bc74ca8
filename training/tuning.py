"""Models whose settings are searched with Optuna, and never told by the error that chose them.

`TunedModel` is a model: whenever it is fitted, it searches the settings on its training rows alone, by the error over
folds of unseen pairs, jobs and families. So its cross-validated error is nested: the rows that are told about took no
part in any search. Settings that an earlier search found, perhaps on other tables, are taken only where every pair that
chose them is among the training rows. Law: the error that a search minimised is never told as the error of the model.

Every search is an Optuna study in a file of the workspace; an interrupted one goes on from its finished trials. A trial
is pruned where its errors in the folds so far are worse than those of the best trial in the same folds (Wilcoxon
signed-rank test).
"""

import hashlib
import json
import logging
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interfere.data.tables import Table
from interfere.errors import InvalidInputError
from interfere.file_writing import write_text
from interfere.predict.acceptance.score import speed
from interfere.training.dataset import Dataset, SourceTables
from interfere.training.evaluation.candidates import INNER_FOLDS, TRAINING_SPLITS, possible_validations
from interfere.training.evaluation.cross_validation import CrossValidation, FoldTask, predict_fold
from interfere.training.models.catalogue import MODELS
from interfere.training.models.completed import CompletedModel, settings_of
from interfere.training.models.protocols import FittedModel, ModelSettings

if TYPE_CHECKING:
    import optuna


STARTUP_TRIALS = 5  # before the sampler models what is good
PRUNED_BELOW_P = 0.1  # Optuna's default; four folds, all of them worse, give p = .0625
STUDIES_FOLDER = "tune"  # of the workspace
SUFFIX = "-tuned"  # of the name of a model
FORMAT = 1  # of files of found settings


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
    found: "FoundSettings | None" = None  # by an earlier search, on pairs of which some are among the rows

    @property
    def name(self) -> str:
        """Return the name of the model that is tuned, marked as such."""
        return f"{self.model.name}{SUFFIX}"

    def fit(self, dataset: Dataset, seed: int) -> FittedModel:
        """Fit with settings that no pair outside of these rows has chosen: found ones where that holds, else the best
        of a search on these rows."""
        if self.found is not None and set(self.found.pairs) <= pair_digests(dataset):
            return with_settings(self.model, self.found.settings).fit(dataset, seed)
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


def pair_digests(dataset: Dataset) -> set[str]:
    """Return a key of each unordered pair of workloads that the rows measure, on whatever device."""
    names = ("", *dataset.workloads)  # identity 0 is an unknown workload
    sides = zip(dataset.rows.victim.tolist(), dataset.rows.neighbour.tolist(), strict=True)
    return _digests((names[i], names[j]) for i, j in sides)


def _digests(pairs: Iterable[tuple[str, str]]) -> set[str]:
    unordered = {(min(pair), max(pair)) for pair in pairs}
    return {hashlib.sha256("\0".join(pair).encode()).hexdigest()[:16] for pair in unordered}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSettings:
    """The settings that a search found, and the pairs that chose them: the file that `tune` writes."""

    model: str
    settings: Mapping[str, float]
    trials: int
    pairs: tuple[str, ...]  # `pair_digests` of the rows of the search

    @property
    def name(self) -> str:
        """Return the name of the model with these settings."""
        return f"{self.model}{SUFFIX}"

    def write(self, path: Path) -> None:
        """Write the file. Raises UnfitError where it cannot be written."""
        write_text(path, json.dumps({"format": FORMAT} | asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> "FoundSettings":
        """Read a file. Raises InvalidInputError where it is none, or names settings that are outside of the space."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document.pop("format") != FORMAT:
                raise ValueError(f"not of format {FORMAT}")
            found = cls(**document | {"pairs": tuple(document["pairs"])})
            space = SPACES[found.model]
            if found.settings.keys() != space.keys() or found.trials < 1:
                raise ValueError(f"settings of {found.model} are {', '.join(space)}")
            if outside := [name for name, each in space.items() if not each.low <= found.settings[name] <= each.high]:
                raise ValueError(f"{outside[0]} = {found.settings[outside[0]]} is out of range")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            remedy = "give a file that interfere tune has written: --settings FILE"
            value = f"{path}: {type(error).__name__}: {error}"
            raise InvalidInputError("no settings of a model", value=value, remedy=remedy) from None
        return found

    def model_for(self, tables: Sequence[Table], work: Path) -> TunedModel:
        """Return the model with these settings for a training that fits and tests pairs of these tables.

        Where some of them chose the settings, folds that could test such a pair search settings of their own, with as
        many trials; their studies are kept in the workspace.
        """
        present = _digests((pair.victim, pair.neighbour) for table in tables for pair in table.pairs)
        found = replace(self, pairs=tuple(sorted(present.intersection(self.pairs))))  # none: nothing here chose them
        return TunedModel(model=MODELS[self.model], trials=self.trials, folder=studies_folder(work), found=found)


def tuned_models(
    found: Sequence[FoundSettings], sources: Iterable[SourceTables | None], work: Path
) -> dict[str, ModelSettings]:
    """Return, by name, the models with these settings for a training that fits and tests pairs of the sources."""
    tables = [table for source in sources if source is not None for table in source.tables]
    return {model.name: model for model in (each.model_for(tables, work) for each in found)}


def read_settings(text: str, work: Path) -> FoundSettings:
    """Return the settings of a file, or those that were found for a model in a workspace.

    Raises InvalidInputError where there are none.
    """
    if text not in SPACES:
        return FoundSettings.read(Path(text))
    file = settings_file(work, text)
    if not file.exists():
        remedy = f"search them first: interfere tune --model {text}"
        raise InvalidInputError("no settings were searched in this workspace", value=str(file), remedy=remedy)
    return FoundSettings.read(file)


def studies_folder(work: Path) -> str:
    """Return the folder of the studies of a workspace."""
    return str((work / STUDIES_FOLDER).resolve())


def settings_file(work: Path, model: str) -> Path:
    """Return the file of the settings that the last `tune` of a model in a workspace found."""
    return work / STUDIES_FOLDER / f"{model}.json"
