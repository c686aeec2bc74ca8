"""Leaderboards: on one table, one fact set and one split, the scores of every baseline and every model.

Figures are means over the seeds. The model that training would publish is named from training rows only.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

import numpy as np

from interfere.data.tables import read_table
from interfere.errors import UnfitError
from interfere.reports.document import Section, Sentence
from interfere.study.engine import Runner
from interfere.training.baselines import BASELINES
from interfere.training.campaigns import training_rows
from interfere.training.dataset import METRIC, Dataset, find_table_folders
from interfere.training.evaluation.candidates import nested_validations, selected_model
from interfere.training.evaluation.cross_validation import IN_THIS_PROCESS, CrossValidation, Evaluation, cross_validate
from interfere.training.evaluation.fewer_facts import (
    FactSet,
    PoorProfileScore,
    ablate_facts,
    columns_without_static,
    score_poor_profiles,
)
from interfere.training.evaluation.scores import Scores, auc, score_table
from interfere.training.evaluation.splits import SELECTION_SPLITS, SPLITS_OF_UNSEEN_JOBS, check_published, folds
from interfere.training.models.catalogue import MODELS, scored_models
from interfere.training.models.completed import CompletedModel
from interfere.training.models.feasibility import FeasibilityRows, feasibility_rows, fit_feasibility

BASELINE_NAMES = frozenset(baseline.name for baseline in BASELINES)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardRow:
    """The scores of one model over all seeds."""

    name: str
    baseline: bool
    scores: Scores  # mean over the seeds that have one
    evaluations: tuple[Evaluation, ...]  # one per seed

    @property
    def selectivity(self) -> float:
        """Return the error of the tenth with the largest abstention scores ÷ that of the other tests; NaN without
        novelty."""
        known = [e.selectivity for e in self.evaluations if not math.isnan(e.selectivity)]
        return float(np.mean(known)) if known else math.nan

    @property
    def stand_in(self) -> float:
        """Return the share of the tests on which a baseline predicts the mean because it lacks its inputs."""
        return float(np.mean([evaluation.stand_in for evaluation in self.evaluations]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """All models and baselines on one table, one fact set and one split."""

    data: str
    facts: FactSet
    split: str
    seeds: tuple[int, ...]
    published: str  # the model that training would publish
    rows: tuple[LeaderboardRow, ...]
    dataset: Dataset
    version: str  # of the published splits; "" for folds drawn by the seeds
    metric: str = METRIC
    feasibility_auc: tuple[float, float]  # (of the feasibility model, of the memory sum); NaN where every pair fits
    measured_columns: frozenset[str]  # that any job has without static facts

    def row(self, name: str) -> LeaderboardRow:
        """Return the row of a model."""
        return next(row for row in self.rows if row.name == name)

    def document(self) -> dict[str, Any]:
        """Return the leaderboard as a JSON document; its key `folds` has one entry per seed and fold."""
        model_auc, memory_sum_auc = self.feasibility_auc
        return {
            "data": self.data,
            "metric": self.metric,
            "facts": str(self.facts),
            "split": self.split,
            "splits_version": self.version,
            "seeds": list(self.seeds),
            "published": self.published,
            "feasibility_auc": {"model": model_auc, "memory_sum": memory_sum_auc},
            "models": [_row_document(row, self.seeds) | {"median_error": self.median_error(row)} for row in self.rows],
        }

    def median_error(self, row: LeaderboardRow) -> float:
        """Return the median over tests of |predicted ÷ measured - 1| of the slowdown, mean over the seeds."""
        medians = [np.median(np.abs(np.expm1(-each.residual(self.dataset)))) for each in row.evaluations]
        return float(np.mean(medians))

    def section(self) -> Section:
        """Return the leaderboard as a section of a report: baselines first, the published model named as such.

        † marks a baseline that lacks its inputs for some rows.
        """
        seeds = ", ".join(map(str, self.seeds))
        version = f" ({self.version})" if self.version else ""
        data = self.data if self.metric == METRIC else f"{self.data} ({self.metric})"
        title = f"{data}, split: {self.split}{version}, facts: {self.facts}, seeds: {seeds}"
        table = score_table(title, ("model",), [((_label(row, self.published),), row.scores) for row in self.rows])
        is_published = self.metric == METRIC
        notes = [f"{'Published' if is_published else 'Best'}: {self.published}, chosen on training rows alone."]
        if not is_published:
            errors = ", ".join(f"{row.name} {self.median_error(row):.1%}" for row in self.rows)
            notes.append(f"Median of |predicted ÷ measured - 1| of the slowdown of {self.metric}: {errors}.")
        model_auc, memory_sum_auc = self.feasibility_auc
        if not math.isnan(model_auc):
            notes.append(
                f"Feasible against infeasible pairs, AUC: {model_auc:.3f} (memory sum alone {memory_sum_auc:.3f})."
            )
        if selective := [f"{row.name} {row.selectivity:.2f}" for row in self.rows if not math.isnan(row.selectivity)]:
            notes.append(
                "The tenth with the largest abstention scores errs so many times as much as the rest: "
                f"{', '.join(selective)}."
            )
        if partial := [f"{row.name} {row.stand_in:.1%}" for row in self.rows if row.stand_in > 0]:
            notes.append(
                f"† the mean stood in, for want of the baseline's inputs, on: {', '.join(partial)} of the rows."
            )
        return Section(title, (table, *map(Sentence, notes)))


def evaluate_tables(
    tables: Sequence[Path],
    *,
    name: str = "table",
    seeds: Sequence[int] = (0,),
    models: str = "",
    splits: Sequence[str] = SELECTION_SPLITS,
    facts: Sequence[FactSet] = tuple(FactSet),
    count: int | None = None,
    runner: Runner = IN_THIS_PROCESS,
    version: str = "",
    features: Sequence[str] = (),
    metric: str = METRIC,
) -> tuple[Leaderboard, ...]:
    """Return a leaderboard per split and fact set, with all baselines and the named models, on the tables read as one.

    Writes nothing, and fits nothing before every split is known to be possible. `count` and `version` as in `folds`,
    `models` and `features` as in `scored_models`, `metric` as in `build_dataset`; of a version, splits
    that the rows do not allow are left out. Raises TableError, UnfitError or InvalidInputError.
    """
    # 1. Read the tables under each fact set.
    splits, seeds = tuple(dict.fromkeys(splits)), tuple(dict.fromkeys(seeds))
    candidates = [*BASELINES, *(model for model in scored_models(models, features) if model.name not in BASELINE_NAMES)]
    sources = [read_table(path) for path in tables]
    ablations, measured_columns = ablate_facts(sources, facts), columns_without_static(sources)
    datasets = {}
    for ablation in ablations:
        rows = training_rows(ablation.tables, ablation.encoder, metric=metric)
        datasets[ablation.facts] = rows.fitted
    for relation in rows.campaigns:
        runner.say(relation.text())
    attempts = {
        ablation.facts: feasibility_rows(ablation.tables, ablation.encoder, metric=METRIC) for ablation in ablations
    }
    # 2. Check that every split is possible.
    scored: dict[tuple[str, FactSet], list[CrossValidation]] = {}
    for split, (fact_set, dataset) in product(splits, datasets.items()):
        about = f"{name}, facts: {fact_set}"
        try:
            scored[split, fact_set] = [
                CrossValidation(
                    dataset=dataset,
                    models=candidates,
                    split=split,
                    seed=seed,
                    count=count,
                    about=about,
                    version=version,
                )
                for seed in seeds
            ]
        except UnfitError as error:
            if not version:
                raise
            runner.say(f"{about}: no split {split}: {error.what} ({error.value})")
    if version:
        runner.say(check_published(next(iter(datasets.values())), version, splits))
    # 3. Cross-validate; the model that training would publish is selected on training rows alone.
    publishable = [model for model in MODELS.values() if model.name in {candidate.name for candidate in candidates}]
    selecting = {
        key: nested_validations(
            validations[0].dataset.take(validations[0].folds[0].train),
            publishable,
            seeds[0],
            about=f"{validations[0].about}, to select a model",
        )
        for key, validations in scored.items()
    }
    everything = [*chain.from_iterable(scored.values()), *chain.from_iterable(selecting.values())]
    found = iter(cross_validate(everything, runner))
    runs = {key: list(islice(found, len(validations))) for key, validations in scored.items()}
    published = {
        key: selected_model(list(islice(found, len(validations))), publishable)
        for key, validations in selecting.items()
    }
    leaderboards = [
        Leaderboard(
            data=name,
            facts=fact_set,
            split=split,
            seeds=seeds,
            published=published[split, fact_set],
            rows=tuple(_leaderboard_row(evaluations) for evaluations in zip(*runs[split, fact_set], strict=True)),
            dataset=datasets[fact_set],
            version=version,
            metric=metric,
            feasibility_auc=_mean_auc(attempts[fact_set], split, seeds, count, version),
            measured_columns=measured_columns,
        )
        for split, fact_set in scored
    ]
    return tuple(leaderboards)


def folders_by_name(data: Sequence[str], work: Path) -> dict[str, list[Path]]:
    """Return the folders of NAME=TABLE values by name; tables of one name are read as one.

    A bare TABLE is named after its folder.
    """
    folders: dict[str, list[Path]] = {}
    for value in data:
        name, _, table = value.rpartition("=") if not Path(value).is_dir() else ("", "", value)
        (folder,) = find_table_folders([table], work)
        folders.setdefault(name or folder.name, []).append(folder)
    return folders


def score_published_on_poor_profiles(
    leaderboards: Sequence[Leaderboard], count: int | None, runner: Runner
) -> list[tuple[tuple[str, str], str, tuple[PoorProfileScore, ...]]]:
    """Return ((data, split), title, scores) of the published model of every leaderboard on unseen jobs and all facts.

    Only the first seed counts. Leaderboards whose published model reads no facts are left out.
    """
    scored = []
    for board in leaderboards:
        model = MODELS.get(board.published)
        if board.facts is FactSet.ALL and board.split in SPLITS_OF_UNSEEN_JOBS and isinstance(model, CompletedModel):
            title = f"{board.data}, split: {board.split}, {model.name} asked about poorly described jobs"
            runner.say(title)
            scores = score_poor_profiles(
                board.dataset, model, board.split, board.seeds[0], count, board.measured_columns, runner
            )
            scored.append(((board.data, board.split), title, scores))
    return scored


def mean_scores(scores: Sequence[Scores]) -> Scores:
    """Return the mean of each score over the rows that have a number there; NaN where none has."""
    means: dict[str, Any] = {}
    for field in fields(Scores):
        known = [value for row in scores if not math.isnan(value := getattr(row, field.name))]
        means[field.name] = float(np.mean(known)) if known else float("nan")
    return Scores(**means | {"rows": round(means["rows"])})


def _mean_auc(
    rows: FeasibilityRows, split: str, seeds: Sequence[int], count: int | None, version: str
) -> tuple[float, float]:
    """Return the mean over the seeds of the AUC of the feasibility model, and of the AUC of the memory sum."""
    by_model, by_memory_sum = zip(*(out_of_fold_auc(rows, split, seed, count, version) for seed in seeds), strict=True)
    return float(np.mean(by_model)), float(np.mean(by_memory_sum))


def _leaderboard_row(evaluations: Sequence[Evaluation]) -> LeaderboardRow:
    name = evaluations[0].model
    return LeaderboardRow(
        name=name,
        baseline=name in BASELINE_NAMES,
        scores=mean_scores([evaluation.scores for evaluation in evaluations]),
        evaluations=tuple(evaluations),
    )


def _label(row: LeaderboardRow, published: str) -> str:
    name = f"{row.name} †" if row.stand_in > 0 else row.name
    return f"{name} (published)" if row.name == published else name


def _row_document(row: LeaderboardRow, seeds: Sequence[int]) -> dict[str, Any]:
    device_maes = [dict(evaluation.per_device) for evaluation in row.evaluations]
    return {
        "name": row.name,
        "baseline": row.baseline,
        **asdict(row.scores),
        "selectivity": row.selectivity,
        "stand_in": row.stand_in,
        "per_device": {
            name: float(np.mean([maes[name] for maes in device_maes if name in maes]))
            for name in sorted({name for maes in device_maes for name in maes})
        },
        "folds": [
            {"seed": seed, **asdict(fold)}
            for seed, evaluation in zip(seeds, row.evaluations, strict=True)
            for fold in evaluation.folds
        ],
    }


def out_of_fold_auc(
    rows: FeasibilityRows, split: str, seed: int, count: int | None = None, version: str = ""
) -> tuple[float, float]:
    """Return the AUC of the fitted feasibility model and of the memory sum alone, pooled over the folds of a split.

    NaN where every pair fits or no memory sum is known. `count` as in `folds`.
    """
    if rows.feasible.all() or not np.isfinite(rows.memory_sum).any():
        return math.nan, math.nan
    by_model, by_memory_sum, feasible = [], [], []
    for fold in folds(rows.dataset, split, seed, count, version):
        fitted, tests = fit_feasibility(rows.take(fold.train)), rows.take(fold.test)
        memory_sum = tests.memory_sum
        victim, neighbour = tests.dataset.rows.victim, tests.dataset.rows.neighbour
        ranking = -memory_sum if fitted is None else fitted.probability(memory_sum, victim, neighbour)
        known = np.isfinite(memory_sum)
        by_model.append(ranking[known])
        by_memory_sum.append(-memory_sum[known])
        feasible.append(tests.feasible[known])
    truth = np.concatenate(feasible)
    return auc(np.concatenate(by_model), truth), auc(np.concatenate(by_memory_sum), truth)
