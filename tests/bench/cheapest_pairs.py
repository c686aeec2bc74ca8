"""A rival of re-pairing that looks at pairs alone: those that lose least first, whoever runs beside whom now.

Moves cost it what they cost the others, and a pair that exists pays none; but it makes no change only because it gains.
"""

import numpy as np

from interfere.matching.problem import WAITS
from interfere.matching.rematching import ELSEWHERE, Arrangement, Rematching, RematchingProblem, value_of


def rematch_by_cheapest_pairs(problem: RematchingProblem) -> Rematching:
    """As many of the cheapest pairs as are needed for all to run, the others alone; as now where that is impossible."""
    n, shift, home = problem.n, problem.relocation, problem.home
    lost = problem.alone[:, None] + problem.alone[None, :] - problem.pair + np.minimum(shift, shift.T)
    together = (home[:, None] == home) & problem.runs
    lost[together] = (problem.alone[:, None] + problem.alone[None, :] - problem.pair)[together]
    i, j = np.triu_indices(n, 1)
    order = np.argsort(lost[i, j], kind="stable")
    mate, needed = np.arange(n), n - problem.devices
    for a, b in zip(i[order].tolist(), j[order].tolist(), strict=True):
        if needed <= 0 or not np.isfinite(lost[a, b]):
            break
        if mate[a] == a and mate[b] == b:
            mate[a], mate[b] = b, a
            needed -= 1
    waiting_last = [k for k in np.flatnonzero(~problem.runs)[::-1].tolist() if mate[k] == k]
    for k in waiting_last[: max(0, needed)]:
        mate[k] = WAITS
    place, used = np.full(n, ELSEWHERE), set[int]()
    groups = [(a, int(mate[a])) for a in range(n) if mate[a] != WAITS and a <= mate[a]]
    for a, b in sorted(groups, key=lambda group: not together[group]):  # pairs that exist stay, the others take turns
        homes = {int(home[b]): shift[a, b], int(home[a]): shift[b, a]}
        free = [device for device in sorted(homes, key=homes.__getitem__) if device != WAITS and device not in used]
        if free:
            used.add(free[0])
            place[[a, b]] = free[0]
    found = Arrangement(mate=mate, place=place)
    value = value_of(problem, found)
    if np.isfinite(value):
        return Rematching(arrangement=found, value=value, upper_bound=np.inf)
    return Rematching(arrangement=problem.current(), value=value_of(problem, problem.current()), upper_bound=np.inf)
