"""The compositions of groups that a training publishes: from its own tables, or from tables of groups beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from interfere.errors import UnfitError
from interfere.predict.groups import GroupComposition
from interfere.protocols import PairEncoder
from interfere.training.campaigns import align_campaigns
from interfere.training.candidates import Candidates
from interfere.training.dataset import build_dataset
from interfere.training.evaluation.cross_validation import out_of_fold
from interfere.training.evaluation.splits import folds
from interfere.training.groups.cases import DomainKey
from interfere.training.groups.evaluation import NONE_PRESENT, DomainComposition, fit_domain_compositions
from interfere.training.source_tables import SourceTables, read_source_tables


def read_group_tables(paths: Sequence[Path]) -> SourceTables | None:
    """The tables of which the groups alone are learned from; None without any.

    Raises UnfitError for one without groups, and what `read_source_tables` raises.
    """
    source = read_source_tables(paths)
    for table in source.tables:
        if not table.ok_groups:
            raise UnfitError(
                "this table holds no group of three or more to learn from",
                value=table.name,
                remedy="measure some, `interfere profile campaign --groups 3`, or leave --groups out",
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
    """The composition of each domain of the training for which one is known; `present`: those of the champion.

    `beside` are tables whose groups alone are learned from, together with their own pairs, for domains of which the
    training's tables hold no groups: what pairs become in company is learned there, the pairs themselves are not, nor
    how sure the answers are, which rest on pairs that were measured elsewhere.
    """
    job_split = next(each for each in candidates.champion_evaluations if each.split == "job")
    own = fit_domain_compositions(candidates.dataset, source.tables, job_split, present)
    if beside is None:
        return own
    measured_here = {(each.device_type, each.mode) for each in own if each.cases}
    trained = {(each.device_type, each.mode) for each in candidates.dataset.domains}
    dataset, _ = align_campaigns(build_dataset(beside.tables, encoder))
    hidden = folds(dataset, "job", candidates.seed)
    other_split = out_of_fold(dataset, candidates.settings[candidates.champion], "job", hidden, candidates.seed)
    name = ", ".join(table.name for table in beside.tables)
    found = {
        (each.device_type, each.mode): replace(each, table=name)
        for each in fit_domain_compositions(dataset, beside.tables, other_split, present, recalibrate=False)
        if each.cases and (each.device_type, each.mode) in trained - measured_here
    }
    return (*(each for each in own if (each.device_type, each.mode) not in found), *found.values())
