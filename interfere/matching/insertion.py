"""An insertion heuristic: waiting jobs join the groups of a placement where they add the least cost."""

import numpy as np

from interfere.matching.formulation import Formulation
from interfere.matching.lookup import GroupLookup
from interfere.matching.patterns import NO_KIND, PatternCosts, Patterns
from interfere.matching.problem import NOBODY, WAITS, Ints, Placement

Group = tuple[int, int, list[int]]  # its pattern, -1 of a job alone on a device; its host; job classes by place


def insert_jobs(
    formulation: Formulation,
    costs: PatternCosts,
    groups: list[Group],
    waiting: list[int],
) -> bool:
    """Add each waiting job to the group where it adds the least cost, in place; return False where a job fits none."""
    patterns = formulation.problem.patterns
    assert patterns is not None
    lookup, width = GroupLookup.of_patterns(patterns, len(formulation.problem.supply)), patterns.members.shape[1]
    for job in waiting:
        keys = np.array(
            [lookup.host_key[host] + lookup.kind_key[patterns.kind[jobs]].sum() for _, host, jobs in groups]
        )
        rows = lookup.find(keys + lookup.kind_key[patterns.kind[job]]) if len(groups) else np.zeros(0, dtype=np.int64)
        best, least = -1, np.inf
        for k in np.flatnonzero(rows >= 0).tolist():
            row, _, jobs = groups[k]
            before = _cost(costs, patterns, row, jobs, width) if row >= 0 else 0.0
            added = _cost(costs, patterns, int(rows[k]), [*jobs, job], width) - before
            if added < least:
                best, least = k, added
        if best < 0:
            return False
        groups[best] = int(rows[best]), groups[best][1], _by_kind(patterns, [*groups[best][2], job])
    return True


def groups_of(formulation: Formulation, counts: Ints) -> tuple[list[Group], list[int]]:
    """Return the groups of a placement and the classes of its waiting jobs; `counts` gives the use of each column."""
    problem, rows = formulation.problem, formulation.pattern_of_columns()
    patterns = problem.patterns
    assert patterns is not None
    lookup = GroupLookup.of_patterns(patterns, len(problem.supply))
    groups: list[Group] = []
    waiting: list[int] = []
    for column in np.flatnonzero(counts).tolist():
        row, host = int(rows[column]), int(problem.host[column])
        jobs = [job for job in problem.members[column].tolist() if job != NOBODY]
        if row >= 0:
            jobs = formulation.places_of(column)
        elif host != WAITS and (len(jobs) > 1 or not problem.is_empty[host]):  # a group found elsewhere
            jobs = _by_kind(patterns, jobs)
            row = lookup.find_group(host, patterns.kind[jobs])
        for _ in range(int(counts[column])):
            if host == WAITS:
                waiting += jobs
            else:
                groups.append((row, host, list(jobs)))
    return groups, waiting


def placement_of_groups(
    formulation: Formulation, costs: PatternCosts, groups: list[Group], waiting: list[int]
) -> Placement | None:
    """Return a placement of the groups with all waiting jobs inserted; jobs of large slope get places of small excess.

    Returns None where a waiting job fits in no group, or where a job left alone has no column.
    """
    if not insert_jobs(formulation, costs, groups, waiting):
        return None
    _sort(formulation, costs, groups)
    problem = formulation.problem
    hosts_and_jobs = zip(problem.host.tolist(), problem.members[:, 0].tolist(), strict=True)
    single = problem.members[:, 1:].max(axis=1, initial=NOBODY) == NOBODY
    alone = {place: column for column, place in enumerate(hosts_and_jobs) if single[column]}
    found = _add(formulation, [group for group in groups if group[0] >= 0])
    found += [alone.get((host, own[0]), -1) for row, host, own in groups if row < 0]
    if -1 in found:
        return None
    columns, counts = np.unique(np.array(found, dtype=np.int64), return_counts=True)
    return Placement(column=columns, count=counts)


def _sort(formulation: Formulation, costs: PatternCosts, groups: list[Group]) -> None:
    """Reassign the jobs of each kind and domain among the places in the order of their slopes, in place."""
    patterns, slope = formulation.problem.patterns, costs.slope
    assert patterns is not None
    places: dict[tuple[int, int], list[tuple[float, int, int]]] = {}  # domain and kind -> excess, group, place
    for k, (row, _, jobs) in enumerate(groups):
        for a, job in enumerate(jobs if row >= 0 else ()):
            key = int(patterns.domain[row]), int(patterns.kind[job])
            places.setdefault(key, []).append((float(patterns.excess[row, a]), k, a))
    for (domain, _), of_kind in places.items():
        jobs = sorted((groups[k][2][a] for _, k, a in of_kind), key=lambda job: -float(slope[domain, job]))
        for (_, k, a), job in zip(sorted(of_kind), jobs, strict=True):
            groups[k][2][a] = job


def _add(formulation: Formulation, groups: list[Group]) -> list[int]:
    if not groups:
        return []
    patterns = formulation.problem.patterns
    assert patterns is not None
    classes = np.full((len(groups), patterns.members.shape[1]), NOBODY, dtype=np.int64)
    for k, (_, _, jobs) in enumerate(groups):
        classes[k, : len(jobs)] = jobs
    columns: list[int] = formulation.add_groups(np.array([row for row, _, _ in groups]), classes).tolist()
    return columns


def _by_kind(patterns: Patterns, jobs: list[int]) -> list[int]:
    return sorted(jobs, key=lambda job: int(patterns.kind[job]))


def _cost(costs: PatternCosts, patterns: Patterns, row: int, jobs: list[int], width: int) -> float:
    classes = np.full((1, width), NOBODY, dtype=np.int64)
    classes[0, : len(jobs)] = _by_kind(patterns, jobs)
    assert (patterns.members[row] != NO_KIND).sum() == len(jobs)
    return float(costs.of_groups(patterns, np.array([row]), classes)[0])
