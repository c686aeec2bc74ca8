"""The score board: on one table, one choice of facts and one split, every baseline and then every model.

Figures are means over the seeds. The published model is named by looking at training rows only.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from interfere.data.tables import read_table
from training.baselines import BASELINES
from training.dataset import METRIC, Dataset, build_dataset, require_enough
from training.evaluation.cross_validation import LEGEND, Evaluation, Report, cells_of, evaluate_models, published_model
from training.evaluation.fact_ablation import Facts, views
from training.evaluation.scores import Scores
from training.evaluation.splits import CHOOSING, folds
from training.models.catalogue import MODELS, chosen
from training.models.feasibility import out_of_fold_auc, tried
from training.sources import table_folders

EXPORTABLE = frozenset(baseline.name for baseline in BASELINES) & frozenset(
    MODELS
)  # training fits and may publish them


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One model over all seeds."""

    name: str
    baseline: bool
    scores: Scores  # mean over the seeds that have one
    evaluations: tuple[Evaluation, ...]  # one a seed

    @property
    def stand_in(self) -> float:
        """Share of the tests that a baseline left to the mean."""
        return float(np.mean([one.stand_in for one in self.evaluations]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All lines of one table, choice of facts and split."""

    data: str
    facts: Facts
    split: str
    seeds: tuple[int, ...]
    published: str
    lines: tuple[Line, ...]
    dataset: Dataset
    fits: tuple[float, float]  # AUC of what fits: of the model, and of the memory sum alone; NaN without misfits

    def line(self, name: str) -> Line:
        """The line of a model."""
        return next(line for line in self.lines if line.name == name)

    def document(self) -> dict[str, Any]:
        """For programs; the key `folds` has one entry a seed and fold."""
        return {
            "data": self.data,
            "facts": str(self.facts),
            "split": self.split,
            "seeds": list(self.seeds),
            "published": self.published,
            "feasibility_auc": {"model": self.fits[0], "memory_sum": self.fits[1]},
            "models": [_line_document(line, self.seeds) for line in self.lines],
        }

    def markdown(self) -> str:
        """For people: baselines first, the published model in bold, † where the mean stood in for a baseline."""
        headings, cells = cells_of([line.scores for line in self.lines])
        seeds = ", ".join(map(str, self.seeds))
        rows = [
            f"### {self.data}, split: {self.split}, facts: {self.facts}, seeds: {seeds}",
            "",
            f"| model | {' | '.join(headings)} |",
            "|---|" + "---|" * len(headings),
            *(
                f"| {_label(line, self.published)} | {' | '.join(row)} |"
                for line, row in zip(self.lines, cells, strict=True)
            ),
        ]
        notes = [f"Published: {self.published}, chosen on training rows alone."]
        if not math.isnan(self.fits[0]):
            notes.append(
                f"Feasible against infeasible pairs, AUC: {self.fits[0]:.3f} (memory sum alone {self.fits[1]:.3f})."
            )
        if left := [f"{line.name} {line.stand_in:.1%}" for line in self.lines if line.stand_in > 0]:
            notes.append(f"† the mean stood in, for want of the baseline's inputs, on: {', '.join(left)} of the rows.")
        return "\n".join([*rows, "", *notes, ""])


def evaluate(
    tables: Sequence[Path],
    *,
    name: str = "table",
    seeds: Sequence[int] = (0,),
    models: str = "",
    splits: Sequence[str] = CHOOSING,
    facts: Sequence[Facts] = tuple(Facts),
    count: int | None = None,
    report: Report = lambda _: None,
) -> tuple[Board, ...]:
    """Read tables as one and score all baselines and the named models, split by split, facts by facts.

    Nothing is written, and nothing is fitted before every split is known to be possible. Raises TableError, UnfitError
    or InvalidInputError.
    """
    splits, seeds = tuple(dict.fromkeys(splits)), tuple(dict.fromkeys(seeds))
    wanted = [*BASELINES, *(model for model in chosen(models) if model.name not in EXPORTABLE)]
    shown_facts = views([read_table(path) for path in tables], facts)
    datasets = {view.facts: build_dataset(view.tables, view.encoder) for view in shown_facts}
    attempts = {view.facts: tried(view.tables, view.encoder, metric=METRIC) for view in shown_facts}
    for dataset in datasets.values():
        require_enough(dataset)
        for split in splits:
            folds(dataset, split, seeds[0], count)
    found = []
    for split in splits:
        for shown, dataset in datasets.items():
            report(f"{name}, {split} split, facts: {shown}")
            candidates = [model for model in MODELS.values() if model.name in {one.name for one in wanted}]
            training = dataset.take(folds(dataset, split, seeds[0], count)[0].train)
            published = published_model(training, candidates, seeds[0])
            runs = [
                evaluate_models(dataset, wanted, splits=(split,), seed=seed, count=count, report=_said(report, seed))
                for seed in seeds
            ]
            aucs = [out_of_fold_auc(attempts[shown], split, seed, count) for seed in seeds]
            fits = (float(np.mean([own for own, _ in aucs])), float(np.mean([by_sum for _, by_sum in aucs])))
            lines = tuple(_line(evaluations) for evaluations in zip(*runs, strict=True))
            found.append(
                Board(
                    data=name,
                    facts=shown,
                    split=split,
                    seeds=seeds,
                    published=published,
                    lines=lines,
                    dataset=dataset,
                    fits=fits,
                )
            )
    return tuple(found)


def evaluate_named(
    data: Sequence[str], work: Path, *, splits: Sequence[str], report: Report, **options: Any
) -> tuple[Board, ...]:
    """`evaluate` for each name of NAME=TABLE values (a bare TABLE has its folder's name), tables of one together."""
    tables: dict[str, list[Path]] = {}
    for value in data:
        name, _, place = value.rpartition("=") if not Path(value).is_dir() else ("", "", value)
        (folder,) = table_folders([place], work)
        tables.setdefault(name or folder.name, []).append(folder)
    found = [evaluate(folders, name=name, splits=splits, report=report, **options) for name, folders in tables.items()]
    return tuple(board for boards in found for board in boards)


def markdown(boards: Sequence[Board]) -> str:
    """All boards and what their columns mean."""
    return "\n".join([*(board.markdown() for board in boards), f"{LEGEND}."])


def documents(boards: Sequence[Board]) -> list[dict[str, Any]]:
    """One a table and split, on the most facts; the same on fewer facts inside it, under `fewer_facts`."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for board in boards:
        key = board.data, board.split
        if key in found:
            found[key]["fewer_facts"].append(board.document())
        else:
            found[key] = board.document() | {"fewer_facts": []}
    return list(found.values())


def _said(report: Report, seed: int) -> Report:
    return lambda text: report(f"seed {seed}: {text}")


def _line(evaluations: Sequence[Evaluation]) -> Line:
    name = evaluations[0].model
    return Line(
        name=name,
        baseline=name in {baseline.name for baseline in BASELINES},
        scores=mean_scores([one.scores for one in evaluations]),
        evaluations=tuple(evaluations),
    )


def mean_scores(scores: Sequence[Scores]) -> Scores:
    """Mean of each field over those where it is a number; NaN where it is none anywhere."""
    means: dict[str, Any] = {}
    for field in fields(Scores):
        known = [value for one in scores if not math.isnan(value := getattr(one, field.name))]
        means[field.name] = float(np.mean(known)) if known else float("nan")
    return Scores(**means | {"rows": round(means["rows"])})


def _label(line: Line, published: str) -> str:
    name = f"{line.name} †" if line.stand_in > 0 else line.name
    return f"**{name}** (published)" if line.name == published else name


def _line_document(line: Line, seeds: Sequence[int]) -> dict[str, Any]:
    devices = [dict(one.per_device) for one in line.evaluations]
    return {
        "name": line.name,
        "baseline": line.baseline,
        **asdict(line.scores),
        "stand_in": line.stand_in,
        "per_device": {
            name: float(np.mean([one[name] for one in devices if name in one]))
            for name in sorted({name for one in devices for name in one})
        },
        "folds": [
            {"seed": seed, **asdict(part)}
            for seed, one in zip(seeds, line.evaluations, strict=True)
            for part in one.folds
        ],
    }
