"""Fits the group composition that is published for each domain, and scores compositions on held-out groups.

Scores are of two splits: `group` holds out whole groups, with every pair measured; `job` holds out whole jobs, whose
pairs are predicted by the model that training would publish.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table, read_table
from interfere.errors import UnfitError
from interfere.predict.groups import DEFAULT_COMPOSITION, GroupComposition
from interfere.protocols import PairEncoder
from interfere.reports.document import Column, Part, Section, Sentence, Tone, table_of
from interfere.reports.numbers import COUNT, fixed
from interfere.sharing_modes import SharingMode
from interfere.training.campaigns import align_campaigns
from interfere.training.dataset import Dataset, SourceTables, build_dataset, read_source_tables
from interfere.training.evaluation.candidates import Candidates
from interfere.training.evaluation.cross_validation import Evaluation, evaluate_models
from interfere.training.groups.fit import (
    CompositionChoice,
    DomainKey,
    GroupCases,
    calibrate,
    choose_composition,
    covered,
    group_cases,
    group_folds,
    hidden_jobs,
    measured_groups,
    measured_pairs,
    predict_held_out,
    translated_campaigns,
)

if TYPE_CHECKING:
    from interfere.training.evaluation.leaderboard import Leaderboard

Floats = NDArray[np.float64]
NONE_PRESENT: Mapping[DomainKey, GroupComposition] = MappingProxyType({})
ERROR = fixed(4)
COLUMNS = (
    Column("jobs", of=lambda score: str(score.size or "all")),
    Column("cases", COUNT, of="cases"),
    Column("fitted", ERROR, of="mae"),
    Column("default", ERROR, of="mae_default"),
    Column("sum", ERROR, of="mae_sum"),
    Column("product", ERROR, of="mae_product"),
    Column("known pairs", ERROR, of="mae_known_pairs"),
    Column("coverage", fixed(3), of="coverage"),
)
LEGEND = (
    "MAE of speed of the victims in groups held out, composed from pairs by parameters that are fitted to the other "
    "groups, by the default ones, as 1 + Σ(s - 1) and as Π s; the same composition of measured pairs; coverage of the "
    "90 % interval"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeScore:
    """The prediction errors on held-out groups of one size, in speed = 1 / slowdown."""

    size: int  # jobs on the device; 0 for all sizes together
    cases: int
    mae: float  # of speed, composed as published
    mae_default: float  # composed by the default parameters
    mae_sum: float  # composed as 1 + Σ(s - 1)
    mae_product: float  # composed as Π s
    mae_known_pairs: float  # composed as published, of pairs that were measured
    coverage: float  # of the 90 % interval


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainComposition:
    """The group composition of one domain with its scores."""

    device_type: str
    mode: SharingMode
    cases: int  # victims in measured groups that it was judged on
    composition: GroupComposition
    scores: tuple[SizeScore, ...]  # none where no group was measured
    choice: CompositionChoice
    table: str = ""  # whose groups it was fitted to and whose pairs no model is fitted to; "" for the training's tables

    def text(self) -> str:
        """Return one line of text: whether the composition was fitted anew, and its scores."""
        of_table = f", table {self.table}" if self.table else ""
        return f"composition of groups on {self.device_type}, {self.mode}{of_table}: {self.choice.text()}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object for the manifest."""
        return asdict(self)


def read_group_tables(paths: Sequence[Path]) -> SourceTables | None:
    """Return the tables of which only the groups are learned; None without such tables.

    Raises UnfitError for a table without groups, and the errors of `read_source_tables`.
    """
    source = read_source_tables(paths)
    for table in source.tables:
        if not table.ok_groups:
            raise UnfitError(
                "this table holds no group of three or more to learn from",
                value=table.name,
                remedy="measure some, `interfere profile campaign --group-size 3`, or leave --group-data out",
            )
    return source if source.tables else None


def published_compositions(
    candidates: Candidates,
    source: SourceTables,
    encoder: PairEncoder,
    *,
    present: Mapping[DomainKey, GroupComposition] = NONE_PRESENT,
    beside: SourceTables | None = None,
) -> tuple[DomainComposition, ...]:
    """Return the composition of groups for each domain of the training that has one. `present`: the champion's
    compositions.

    `beside` are tables of which only the groups are learned. They are used for domains without groups in the training's
    tables, and with the pairs of `beside` itself. From them the composition learns how the slowdowns of pairs combine
    in a group. It does not learn the pairs, and it does not recalibrate intervals, because the model's pairs were
    measured elsewhere.
    """
    job_split = next(each for each in candidates.champion_evaluations if each.split == "job")
    own = fit_domain_compositions(candidates.dataset, source.tables, job_split, present)
    if beside is None:
        return own
    measured_here = {(each.device_type, each.mode) for each in own if each.cases}
    trained = {(each.device_type, each.mode) for each in candidates.dataset.domains}
    dataset, _ = align_campaigns(build_dataset(beside.tables, encoder))
    champion = candidates.settings[candidates.champion]
    (other_split,) = evaluate_models(dataset, [champion], splits=("job",), seed=candidates.seed)
    name = ", ".join(table.name for table in beside.tables)
    found = {
        (each.device_type, each.mode): replace(each, table=name)
        for each in fit_domain_compositions(dataset, beside.tables, other_split, present, recalibrate=False)
        if each.cases and (each.device_type, each.mode) in trained - measured_here
    }
    return (*(each for each in own if (each.device_type, each.mode) not in found), *found.values())


def fit_domain_compositions(
    dataset: Dataset,
    tables: Sequence[Table],
    job_split: Evaluation,
    present: Mapping[DomainKey, GroupComposition] = NONE_PRESENT,
    *,
    recalibrate: bool = True,
) -> tuple[DomainComposition, ...]:
    """Return a fitted composition for each domain with measured groups, and the `present` ones of other domains.

    `job_split` is the published model's evaluation with jobs held out. `present` are the compositions of the registry's
    champion; their intervals are kept unless `recalibrate` is set. Groups measured on a software stack from which the
    pairs of their domain were translated are left out.
    """
    groups = measured_groups(tables, translated_campaigns(dataset))
    known = group_cases(groups, tables, measured_pairs(dataset))
    folds = hidden_jobs(dataset, job_split) if len(known) else ()
    unseen_by_fold = [(fold.jobs, group_cases(groups, tables, fold.find_pair)) for fold in folds]
    found = []
    for domain in dict.fromkeys((each.device_type, each.mode) for each in dataset.domains):
        of_domain = [
            (hidden, (cases := unseen.of_domain(domain)).take(cases.with_any(hidden)))
            for hidden, unseen in unseen_by_fold
        ]
        known_here = known.of_domain(domain)
        if len(known_here) or domain in present:
            start = present.get(domain, DEFAULT_COMPOSITION)
            found.append(_fit_domain(domain, known_here, of_domain, start, recalibrate=recalibrate))
    return tuple(found)


def _fit_domain(
    domain: DomainKey,
    known: GroupCases,
    unseen_by_fold: Sequence[tuple[frozenset[str], GroupCases]],
    present: GroupComposition,
    *,
    recalibrate: bool,
) -> DomainComposition:
    # 1. Choose between the present composition and one fitted to these groups.
    choice = choose_composition(known, present)
    # 2. Predict the cases of each fold by what was fitted on the groups without its hidden jobs.
    seen_tests, unseen_tests = [], []
    for hidden, unseen in unseen_by_fold:
        tested = known.with_any(hidden)
        composition = choice.fit(known.take(~tested))
        seen_tests.append((known.take(tested), known.take(tested).predicted(composition)))
        unseen_tests.append((unseen, unseen.predicted(composition)))
    none = known.take(np.zeros(len(known), dtype=bool)), np.zeros(0)
    seen, unseen_pool = _pooled([none, *seen_tests]), _pooled([none, *unseen_tests])
    # 3. Fit on all, and calibrate on what was held out.
    published = choice.fit(known)
    if recalibrate:
        published = calibrate(published, *seen, with_pairs=unseen_pool)
    # 4. Score: the intervals of each fold are calibrated on the groups without its hidden jobs.
    inside = [np.zeros(0, dtype=bool)]
    for (hidden, _), (cases, predicted) in zip(unseen_by_fold, unseen_tests, strict=True):
        other_seen, other_unseen = (
            _pooled([none, *(_without(hidden, *test) for test in tests)]) for tests in (seen_tests, unseen_tests)
        )
        of_fold = calibrate(published, *other_seen, with_pairs=other_unseen) if recalibrate else published
        inside.append(covered(cases, predicted, of_fold))
    return DomainComposition(
        device_type=domain[0],
        mode=domain[1],
        cases=len(known),
        composition=published,
        scores=score_by_size(unseen_pool, seen, np.concatenate(inside)),
        choice=choice,
    )


def _without(hidden: frozenset[str], cases: GroupCases, predicted: Floats) -> tuple[GroupCases, Floats]:
    """Return the cases of groups that contain no hidden job, with their predictions."""
    others = ~cases.with_any(hidden)
    return cases.take(others), predicted[others]


def _pooled(tests: Sequence[tuple[GroupCases, Floats]]) -> tuple[GroupCases, Floats]:
    """Return all cases with their predictions, concatenated."""
    return GroupCases.concatenated([cases for cases, _ in tests]), np.concatenate([predicted for _, predicted in tests])


def score_by_size(
    unseen: tuple[GroupCases, Floats], seen: tuple[GroupCases, Floats], inside: NDArray[np.bool_]
) -> tuple[SizeScore, ...]:
    """Return the scores of held-out cases for each group size, then for all sizes together.

    `unseen`: cases and predictions; `seen`: the same groups with measured pairs; `inside` bool[g]: which measured
    slowdowns lie in their intervals.
    """
    sizes = sorted({int(m) + 1 for m in unseen[0].neighbours})
    return tuple(_score(size, unseen, seen, inside) for size in (*sizes, 0)) if sizes else ()


def _score(
    size: int, unseen: tuple[GroupCases, Floats], seen: tuple[GroupCases, Floats], inside: NDArray[np.bool_]
) -> SizeScore:
    (cases, predicted), (known, of_known) = unseen, seen
    chosen, chosen_known = (
        np.ones(len(each), dtype=bool) if size == 0 else each.neighbours + 1 == size for each in (cases, known)
    )

    def mae(slowdown: Floats) -> float:
        return float(cases.speed_errors(slowdown)[chosen].mean())

    of_known_error = known.speed_errors(of_known)[chosen_known]
    return SizeScore(
        size=size,
        cases=int(chosen.sum()),
        mae=mae(predicted),
        mae_default=mae(cases.predicted(DEFAULT_COMPOSITION)),
        mae_sum=mae(1.0 + cases.excess),
        mae_product=mae(cases.product),
        mae_known_pairs=float(of_known_error.mean()) if len(of_known_error) else math.nan,
        coverage=float(inside[chosen].mean()),
    )


# --- leaderboards of groups -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScores:
    """The scores of one domain of one table on one split."""

    data: str
    split: str  # `group` or `job`
    device_type: str
    mode: SharingMode
    scores: tuple[SizeScore, ...]
    model: str = ""  # that predicts the pairs of a hidden job; "" on the split `group`
    mae_pairs: float = math.nan  # of that model, on the pairs of the same split; NaN on the split `group`


def evaluate_groups(
    leaderboards: Sequence["Leaderboard"], folders: Mapping[str, Sequence[Path]]
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
        for device_type, mode in dict.fromkeys(cases.domain.tolist()):
            if scores := _scores_of_held_out_groups(cases.of_domain((device_type, mode))):
                found.append(GroupScores(data=name, split="group", device_type=device_type, mode=mode, scores=scores))
        job_split = next((leaderboard for leaderboard in of_name if leaderboard.split == "job"), None)
        if job_split is not None and len(cases):
            row = job_split.row(job_split.published)
            found += [
                GroupScores(
                    data=name,
                    split="job",
                    device_type=each.device_type,
                    mode=each.mode,
                    scores=each.scores,
                    model=row.name,
                    mae_pairs=row.scores.mae,
                )
                for each in fit_domain_compositions(job_split.dataset, tables, row.evaluations[0])
                if each.scores
            ]
    return tuple(found)


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
    parts: list[Part] = []
    for each in groups:
        what = (
            "whole groups held out, their pairs measured"
            if each.split == "group"
            else f"whole jobs held out, their pairs predicted by {each.model} (MAE of pairs on this split "
            f"{each.mae_pairs:.4f})"
        )
        title = f"{each.data}, groups of three and more on {each.device_type}, {each.mode}: {what}"
        parts.append(Section(title, (table_of(title, COLUMNS, each.scores),)))
    return [*parts, Sentence(f"{LEGEND}.", tone=Tone.NOTE)] if parts else []
