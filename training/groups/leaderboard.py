"""Leaderboards for groups of three or more jobs: errors of the composition from pairs and of simple baselines.

Two splits: `group` holds out whole groups, with every pair measured; `job` holds out whole jobs, whose pairs are
predicted by the model that training would publish.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from interfere.data.tables import read_table
from interfere.predict.groups import DEFAULT_COMPOSITION
from interfere.reports.document import Column, Part, Section, Sentence, Table, Tone
from interfere.reports.numbers import COUNT, fixed
from interfere.sharing_modes import SharingMode
from interfere.training.evaluation.leaderboard import Leaderboard
from interfere.training.groups.cases import (
    GroupCases,
    group_cases,
    measured_groups,
    measured_pairs,
    translated_campaigns,
)
from interfere.training.groups.choice import group_folds, predict_held_out
from interfere.training.groups.evaluation import SizeScore, fit_domain_compositions, score_by_size
from interfere.training.groups.fit import calibrate, covered

LEGEND = (
    "MAE of speed of the victims in groups held out, composed from pairs by parameters that are fitted to the other "
    "groups, by the default ones, as 1 + Σ(s - 1) and as Π s; the same composition of measured pairs; coverage of the "
    "90 % interval"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScores:
    """The scores of one domain of one table on one split."""

    data: str
    split: str  # `group` or `job`
    device_type: str
    mode: SharingMode
    model: str  # that predicts the pairs of a hidden job; "" on the split `group`
    mae_pairs: float  # of that model, on the pairs of the same split; NaN on the split `group`
    scores: tuple[SizeScore, ...]

    def document(self) -> dict[str, Any]:
        """Return the scores as a JSON document."""
        return asdict(self)


def evaluate_groups(
    leaderboards: Sequence[Leaderboard], folders: Mapping[str, Sequence[Path]]
) -> tuple[GroupScores, ...]:
    """Return the scores of all groups of the tables; `folders` are keyed by the name of their leaderboards.

    The split `job` is scored where a leaderboard has it, with its first seed and first set of facts.
    """
    found: list[GroupScores] = []
    for name, paths in folders.items():
        tables = [read_table(path) for path in paths]
        of_name = [leaderboard for leaderboard in leaderboards if leaderboard.data == name]
        dataset = of_name[0].dataset
        cases = group_cases(measured_groups(tables, translated_campaigns(dataset)), tables, measured_pairs(dataset))
        for device_type, mode in dict.fromkeys(cases.domain):
            scores = _scores_of_held_out_groups(cases.of_domain((device_type, mode)))
            found += [_group_scores(name, "group", device_type, mode, scores)] if scores else []
        job_split = next((leaderboard for leaderboard in of_name if leaderboard.split == "job"), None)
        if job_split is not None and len(cases):
            row = job_split.row(job_split.published)
            found += [
                _group_scores(name, "job", each.device_type, each.mode, each.scores, row.name, row.scores.mae)
                for each in fit_domain_compositions(job_split.dataset, tables, row.evaluations[0])
                if each.scores
            ]
    return tuple(found)


def _group_scores(
    data: str,
    split: str,
    device_type: str,
    mode: SharingMode,
    scores: tuple[SizeScore, ...],
    model: str = "",
    mae_pairs: float = float("nan"),
) -> GroupScores:
    return GroupScores(
        data=data, split=split, device_type=device_type, mode=mode, model=model, mae_pairs=mae_pairs, scores=scores
    )


def _scores_of_held_out_groups(cases: GroupCases) -> tuple[SizeScore, ...]:
    """Return the scores of one domain's cases with whole groups held out; empty where too few groups were measured."""
    predicted, fold = predict_held_out(cases), group_folds(cases)
    if predicted is None or fold is None:
        return ()
    inside = np.zeros(len(cases), dtype=bool)
    for k in np.unique(fold).tolist():
        others, held_out = fold != k, fold == k
        told = calibrate(DEFAULT_COMPOSITION, cases.take(others), predicted[others], with_pairs=None)
        inside[held_out] = covered(cases.take(held_out), predicted[held_out], told)
    return score_by_size((cases, predicted), (cases, predicted), inside)


def groups_parts(groups: Sequence[GroupScores]) -> list[Part]:
    """Return a report section with one table per score; empty without measured groups."""
    error = fixed(4)
    parts: list[Part] = []
    for each in groups:
        what = (
            "whole groups held out, their pairs measured"
            if each.split == "group"
            else f"whole jobs held out, their pairs predicted by {each.model} (MAE of pairs on this split "
            f"{each.mae_pairs:.4f})"
        )
        title = f"{each.data}, groups of three and more on {each.device_type}, {each.mode}: {what}"
        errors = ("fitted", "default", "sum", "product", "known pairs")
        columns = (
            Column("jobs"),
            Column("cases", COUNT),
            *(Column(name, error) for name in errors),
            Column("coverage", fixed(3)),
        )
        rows = tuple(
            (
                *(str(score.size or "all"), score.cases, score.mae, score.mae_default, score.mae_sum),
                *(score.mae_product, score.mae_known_pairs, score.coverage),
            )
            for score in each.scores
        )
        parts.append(Section(title, (Table(title=title, columns=columns, rows=rows),)))
    return [*parts, Sentence(f"{LEGEND}.", tone=Tone.NOTE)] if parts else []
