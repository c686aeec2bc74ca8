"""Rules of other packages: which jobs may not share a device at a site, by fields of the jobs and what is predicted.

A server keeps the rules that its setting `rules` names in every decision. Such a rule only forbids: it never allows a
pair that another rule forbids, and it says nothing of a job alone, which pools restrict.
Law 1: two pending jobs share only where the rule allows both orders; the arrays that a rule returns need no symmetry.
Law 2: a rule sees the fields that it names and no others, so jobs that differ in other fields only stay
interchangeable.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError, UnfitError
from interfere.extensions import ExtensionKind, find_extension
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.group_rules import Bools, GroupRule
from interfere.records import Job, Rule, RuleKind

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPairs:
    """r jobs beside each of c partners on devices of one class, as a rule of another package sees them."""

    job: Mapping[str, NDArray[np.object_]]  # object[r, 1]: each field that the rule reads
    partner: Mapping[str, NDArray[np.object_]]  # object[1, c]
    device_class: DeviceClass
    slowdown: Floats  # float64[r, c]: predicted median of the job; NaN where nothing is predicted
    partner_slowdown: Floats
    is_resident: bool  # whether the partners run already


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingRule:
    """One rule on which jobs may share a device."""

    forbids: Callable[[SharedPairs], Bools]  # bool[r, c], or what broadcasts to it
    because: str  # in one clause, told with every pair that it refuses
    reads: tuple[str, ...] = ()  # fields of a job
    name: str = ""  # under which it is installed

    def __post_init__(self) -> None:
        if unknown := set(self.reads) - set(Job.__dataclass_fields__):
            remedy = "name fields of interfere.Job in `reads`"
            raise InvalidInputError("a rule reads what no job has", value=", ".join(sorted(unknown)), remedy=remedy)


def named_rule(name: str) -> SharingRule:
    """Return the rule of another package, by its name or `package:Object`.

    Raises InvalidInputError for an unknown name and for what is no rule, UnfitError where it cannot be loaded.
    """
    found = find_extension(ExtensionKind.RULE, name)
    if not isinstance(found, SharingRule):
        remedy = "name a SharingRule of interfere.policy.rules.custom"
        raise InvalidInputError("no rule", value=f"{name}: {type(found).__name__}", remedy=remedy)
    return SharingRule(forbids=found.forbids, because=found.because, reads=found.reads, name=name)


def fields_read(rules: Sequence[SharingRule]) -> tuple[str, ...]:
    """Return the fields of jobs that some of the rules read, each once."""
    return tuple(dict.fromkeys(name for rule in rules for name in rule.reads))


def custom_rules(
    rules: Sequence[SharingRule],
    jobs: Sequence[Job],
    partners: Sequence[Job],
    device_class: DeviceClass,
    slowdown: Sequence[Floats],
    *,
    running: bool,
) -> Iterator[GroupRule]:
    """Yield each rule on the jobs beside the partners; `slowdown`: float64[r, c] of the jobs and of the partners.

    `running`: whether the partners are residents; else they are the jobs themselves. Raises UnfitError, which names the
    rule, where a rule fails.
    """
    for rule in rules:
        pairs = SharedPairs(
            job={name: _column(jobs, name)[:, None] for name in rule.reads},
            partner={name: _column(partners, name)[None, :] for name in rule.reads},
            device_class=device_class,
            slowdown=slowdown[0],
            partner_slowdown=slowdown[1],
            is_resident=running,
        )
        yield _on_pairs(rule, pairs, jobs, partners)


def _on_pairs(rule: SharingRule, pairs: SharedPairs, jobs: Sequence[Job], partners: Sequence[Job]) -> GroupRule:
    mask = _mask(rule, pairs, (len(jobs), len(partners)))
    return GroupRule.of_kind(
        RuleKind.CUSTOM,
        mask if pairs.is_resident else mask | mask.T,
        lambda i, j: Rule(
            kind=RuleKind.CUSTOM,
            job_id=jobs[i].id,
            partner_id=partners[j].id,
            custom_rule=rule.name,
            detail=rule.because,
        ),
    )


def _column(jobs: Sequence[Job], name: str) -> NDArray[np.object_]:
    """object[n]: one field of jobs."""
    column = np.empty(len(jobs), dtype=object)
    column[:] = [getattr(job, name) for job in jobs]
    return column


def _mask(rule: SharingRule, pairs: SharedPairs, shape: tuple[int, int]) -> Bools:
    """bool[r, c]: what a rule forbids. Raises UnfitError where it fails, or answers something else."""
    try:
        mask = np.broadcast_to(np.asarray(rule.forbids(pairs)), shape)
    except Exception as error:
        raise _failed(rule, f"{type(error).__name__}: {error}") from error
    if mask.dtype != bool:
        raise _failed(rule, f"it returned {mask.dtype} in place of bool")
    return mask


def _failed(rule: SharingRule, value: str) -> UnfitError:
    remedy = "repair its package, or take it out of the server's setting `rules`"
    return UnfitError(f"the rule '{rule.name}' failed", value=value, remedy=remedy)
