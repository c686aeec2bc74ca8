"""Leaderboards: on one table, one fact set and one split, the scores of every baseline and every model.

Figures are means over the seeds. The model that training would publish is named from training rows only.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from interfere.data.tables import read_table
from interfere.errors import InvalidInputError
from interfere.reports.document import (
    Axis,
    Colour,
    Document,
    Estimate,
    Mark,
    PlotRow,
    RowPlot,
    Section,
    Sentence,
    Series,
    Tone,
)
from interfere.reports.html_page import write_html_page
from interfere.study.engine import Runner
from interfere.training.baselines import BASELINES
from interfere.training.campaigns import align_campaigns, alignment_texts
from interfere.training.dataset import METRIC, Dataset, build_dataset, find_table_folders, require_min_pairs
from interfere.training.evaluation.candidates import nested_validations, selected_model
from interfere.training.evaluation.cross_validation import IN_THIS_PROCESS, CrossValidation, Evaluation, cross_validate
from interfere.training.evaluation.fewer_facts import FactSet, PoorProfileScore, ablate_facts, score_poor_profiles
from interfere.training.evaluation.figures import ERROR, ERROR_TITLE, SPLIT_TITLES, error_by_job, predicted_vs_measured
from interfere.training.evaluation.scores import LEGEND, Scores, auc, score_table
from interfere.training.evaluation.splits import SELECTION_SPLITS, SPLITS_OF_UNSEEN_JOBS, folds
from interfere.training.models.catalogue import MODELS, select_models
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
    feasibility_auc: tuple[float, float]  # (of the feasibility model, of the memory sum); NaN where every pair fits

    def row(self, name: str) -> LeaderboardRow:
        """Return the row of a model."""
        return next(row for row in self.rows if row.name == name)

    def document(self) -> dict[str, Any]:
        """Return the leaderboard as a JSON document; its key `folds` has one entry per seed and fold."""
        model_auc, memory_sum_auc = self.feasibility_auc
        return {
            "data": self.data,
            "facts": str(self.facts),
            "split": self.split,
            "seeds": list(self.seeds),
            "published": self.published,
            "feasibility_auc": {"model": model_auc, "memory_sum": memory_sum_auc},
            "models": [_row_document(row, self.seeds) for row in self.rows],
        }

    def section(self) -> Section:
        """Return the leaderboard as a section of a report: baselines first, the published model named as such.

        † marks a baseline that lacks its inputs for some rows.
        """
        seeds = ", ".join(map(str, self.seeds))
        title = f"{self.data}, split: {self.split}, facts: {self.facts}, seeds: {seeds}"
        table = score_table(title, ("model",), [((_label(row, self.published),), row.scores) for row in self.rows])
        notes = [f"Published: {self.published}, chosen on training rows alone."]
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
) -> tuple[Leaderboard, ...]:
    """Return a leaderboard per split and fact set, with all baselines and the named models, on the tables read as one.

    Writes nothing, and fits nothing before every split is known to be possible. `count` as in `folds`. Raises
    TableError, UnfitError or InvalidInputError.
    """
    # 1. Read the tables under each fact set.
    splits, seeds = tuple(dict.fromkeys(splits)), tuple(dict.fromkeys(seeds))
    candidates = [*BASELINES, *(model for model in select_models(models) if model.name not in BASELINE_NAMES)]
    ablations = ablate_facts([read_table(path) for path in tables], facts)
    datasets = {}
    for ablation in ablations:
        datasets[ablation.facts], campaigns = align_campaigns(build_dataset(ablation.tables, ablation.encoder))
    for line in alignment_texts(campaigns):
        runner.say(line)
    attempts = {
        ablation.facts: feasibility_rows(ablation.tables, ablation.encoder, metric=METRIC) for ablation in ablations
    }
    # 2. Check that every split is possible.
    for dataset in datasets.values():
        require_min_pairs(dataset)
    scored = {
        (split, fact_set): [
            CrossValidation(
                dataset=dataset,
                models=candidates,
                split=split,
                seed=seed,
                count=count,
                about=f"{name}, facts: {fact_set}",
            )
            for seed in seeds
        ]
        for split in splits
        for fact_set, dataset in datasets.items()
    }
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
            feasibility_auc=_mean_auc(attempts[fact_set], split, seeds, count),
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


def evaluate_named_tables(
    folders: Mapping[str, Sequence[Path]], *, splits: Sequence[str], runner: Runner, **options: Any
) -> tuple[Leaderboard, ...]:
    """Return the leaderboards of each name of `folders_by_name`, as `evaluate_tables` makes them."""
    return tuple(
        leaderboard
        for name, tables in folders.items()
        for leaderboard in evaluate_tables(tables, name=name, splits=splits, runner=runner, **options)
    )


def leaderboards_report(leaderboards: Sequence[Leaderboard]) -> Document:
    """Return the report of all leaderboards, with the meaning of their columns."""
    sections = (leaderboard.section() for leaderboard in leaderboards)
    return Document("Leaderboards", (*sections, Sentence(f"{LEGEND}.", tone=Tone.NOTE)))


def leaderboard_documents(leaderboards: Sequence[Leaderboard]) -> list[dict[str, Any]]:
    """Return one document per table and split, for the largest set of facts. The scores on fewer facts are under
    `fewer_facts`."""
    documents: dict[tuple[str, str], dict[str, Any]] = {}
    for leaderboard in leaderboards:
        key = leaderboard.data, leaderboard.split
        if key in documents:
            documents[key]["fewer_facts"].append(leaderboard.document())
        else:
            documents[key] = leaderboard.document() | {"fewer_facts": []}
    return list(documents.values())


def score_published_on_poor_profiles(
    leaderboards: Sequence[Leaderboard], count: int | None, runner: Runner
) -> list[tuple[tuple[str, str], str, tuple[PoorProfileScore, ...]]]:
    """Return ((data, split), title, scores) of the published model of every leaderboard on unseen jobs and all facts.

    Only the first seed counts. Leaderboards whose published model reads no facts are left out.
    """
    scored = []
    for leaderboard in leaderboards:
        model = MODELS.get(leaderboard.published)
        if (
            leaderboard.facts is FactSet.ALL
            and leaderboard.split in SPLITS_OF_UNSEEN_JOBS
            and isinstance(model, CompletedModel)
        ):
            title = f"{leaderboard.data}, split: {leaderboard.split}, {model.name} asked about poorly described jobs"
            runner.say(title)
            scores = score_poor_profiles(leaderboard.dataset, model, leaderboard.split, leaderboard.seeds[0], count)
            scored.append(((leaderboard.data, leaderboard.split), title, scores))
    return scored


def mean_scores(scores: Sequence[Scores]) -> Scores:
    """Return the mean of each score over the rows that have a number there; NaN where none has."""
    means: dict[str, Any] = {}
    for field in fields(Scores):
        known = [value for row in scores if not math.isnan(value := getattr(row, field.name))]
        means[field.name] = float(np.mean(known)) if known else float("nan")
    return Scores(**means | {"rows": round(means["rows"])})


def _mean_auc(rows: FeasibilityRows, split: str, seeds: Sequence[int], count: int | None) -> tuple[float, float]:
    """Return the mean over the seeds of the AUC of the feasibility model, and of the AUC of the memory sum."""
    by_model, by_memory_sum = zip(*(out_of_fold_auc(rows, split, seed, count) for seed in seeds), strict=True)
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


def out_of_fold_auc(rows: FeasibilityRows, split: str, seed: int, count: int | None = None) -> tuple[float, float]:
    """Return the AUC of the fitted feasibility model and of the memory sum alone, pooled over the folds of a split.

    NaN where every pair fits or no memory sum is known. `count` as in `folds`.
    """
    if rows.feasible.all() or not np.isfinite(rows.memory_sum).any():
        return math.nan, math.nan
    by_model, by_memory_sum, feasible = [], [], []
    for fold in folds(rows.dataset, split, seed, count):
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


def leaderboard_figure(leaderboard: Leaderboard) -> RowPlot:
    """Return the MAE of every model with its standard error; baselines are grey, the published model is red."""
    kinds = (
        Series(name=f"published: {leaderboard.published}", mark=Mark.BAR, colour=Colour.RED),
        Series(name="baseline", mark=Mark.BAR, colour=Colour.GREY),
        Series(name="model", mark=Mark.BAR),
    )
    rows = []
    for row in leaderboard.rows:
        kind = 0 if row.name == leaderboard.published else 1 if row.baseline else 2
        error = Estimate(row.scores.mae, row.scores.mae - row.scores.mae_se, row.scores.mae + row.scores.mae_se)
        rows.append(PlotRow(label=row.name, values=tuple((error,) if k == kind else () for k in range(3))))
    split = SPLIT_TITLES[leaderboard.split]
    return RowPlot(
        title=f"{leaderboard.data}, {split}, facts: {leaderboard.facts}",
        axis=Axis(title=f"{ERROR_TITLE}, ± standard error over victims", form=ERROR),
        series=kinds,
        rows=tuple(rows),
    )


def leaderboard_page(leaderboard: Leaderboard) -> Document:
    """Return a leaderboard with its figure, and the predictions and errors by job of the published model."""
    published = leaderboard.row(leaderboard.published).evaluations[:1]
    figures = (
        leaderboard_figure(leaderboard),
        predicted_vs_measured(leaderboard.dataset, published),
        error_by_job(leaderboard.dataset, published),
    )
    return Document(f"{leaderboard.data}, {SPLIT_TITLES[leaderboard.split]}", (leaderboard.section(), *figures))


def make_figure_folder(folder: Path) -> None:
    """Make the folder, before the work starts. Raises InvalidInputError where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".write").touch()
        (folder / ".write").unlink()
    except OSError as error:
        raise InvalidInputError(
            f"figures cannot be written there ({error.strerror or error})",
            value=str(folder),
            remedy="choose a folder you may write to with --plots",
        ) from error


def write_leaderboard_pages(leaderboards: Sequence[Leaderboard], folder: Path) -> list[Path]:
    """Write a page for each leaderboard, and return the files."""
    files = []
    for leaderboard in leaderboards:
        title = f"{leaderboard.data}_{leaderboard.split}_{leaderboard.facts}.html"
        file = folder / re.sub(r"[^\w.-]+", "-", title)  # the name of the data is free text
        files.append(write_html_page(file, leaderboard_page(leaderboard)))
    return files
