"""Min-sum objectives: first start the most weight, then at the smallest sum of costs.

Pending jobs, residents with a free seat and waiting places are the vertices of one general matching. A resident without
neighbour costs nothing; a waiting place costs a penalty above every possible saving; at most as many groups start as
there are empty devices. With empty devices of several classes a group is priced at its best class first (that cost is
the lower bound) and the groups are then assigned to devices; where this is not optimal, an integer program takes the
classes into account (`device_classes`).
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.matching.exact import match_pairs
from interfere.matching.records import Matching
from interfere.matching.seats import assign_seats
from interfere.policy.costs.candidates import Candidates, Start
from interfere.policy.solve.device_classes import place_by_integer_program
from interfere.records import SolveStatus
from interfere.time_budget import UNLIMITED, TimeBudget

Floats = NDArray[np.float64]
MIN_SEARCH_S = 1e-3  # for a search whose budget has expired: it answers heuristically
LARGE_PROBLEM = 300  # jobs and seats from which the search for the device limit's price takes longer than a second try
# Costs that one more started job may change, because another moves to make place for it; too few, and the try at low
# penalties fails.
CHANGED_COSTS = 4.0
RELATIVE_TOLERANCE = 1e-9  # sums of the same costs in another order


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A set of starts; every pending job in none of them waits."""

    starts: tuple[Start, ...]
    cost: float  # Σ over the starts
    waiting_penalty: float  # Σ over the jobs that wait
    lower_bound: float  # no placement has a lower cost + waiting penalty
    is_optimal: bool

    @property
    def total(self) -> float:
        """Cost and waiting penalty: what is minimised."""
        return self.cost + self.waiting_penalty


def waiting_penalties(candidates: Candidates) -> Floats:
    """float64[n]: so large that no saving in costs makes a job wait; in proportion to the job's start weight."""
    start_weight = candidates.start_weight
    if not len(start_weight):
        return start_weight
    tables = (*(cost[:, None] for cost in candidates.solo_cost.values()), candidates.seat_cost())
    tables += tuple(table.cost for table in candidates.pair_tables.values())
    # No placement costs more than Σ of each job's most expensive choice, and none less than -Σ.
    dearest = np.max([np.max(np.abs(t), axis=1, where=np.isfinite(t), initial=0.0) for t in tables], axis=0)
    return np.asarray((1.0 + 2.0 * dearest.sum()) * start_weight / start_weight.min())


def solve_min_sum(candidates: Candidates, penalties: Floats, budget: TimeBudget = UNLIMITED) -> Placement:
    """The cheapest placement, `penalties` float64[n] for each job that waits; once the budget has expired the best so
    far."""
    matching = _match(candidates, penalties, budget)
    placement = _placement_of_matching(candidates, penalties, matching)
    if placement.is_optimal or not candidates.pending or len(candidates.pair_tables) < 2 or budget.expired:
        return placement
    program = place_by_integer_program(candidates, penalties, budget)
    if program is None:
        return placement
    lower_bound = max(placement.lower_bound, program.lower_bound)
    by_program = placement_from(
        candidates, penalties, program.starts, lower_bound=lower_bound, is_optimal=program.is_optimal
    )
    return by_program if by_program.total <= placement.total else placement


def placement_from(
    candidates: Candidates,
    penalties: Floats,
    starts: tuple[Start, ...],
    *,
    lower_bound: float,
    is_optimal: bool = False,
) -> Placement:
    """The placement of given starts; `lower_bound` on cost and waiting penalty of any placement."""
    waits = np.ones(len(candidates.pending), dtype=bool)
    for start in starts:
        waits[list(start.members)] = False
    cost = float(sum(candidates.cost_of(start)[0] for start in starts))
    waiting_penalty = float(penalties[waits].sum())
    total = cost + waiting_penalty
    return Placement(
        starts=starts,
        cost=cost,
        waiting_penalty=waiting_penalty,
        lower_bound=total if is_optimal else min(lower_bound, total),
        is_optimal=is_optimal,
    )


def cost_lower_bound(candidates: Candidates) -> float:
    """A bound on the cost of any placement that starts every pending job: each at its cheapest, half of a pair's
    cost."""
    cheapest = candidates.best_solo_cost()
    for share in (candidates.seat_cost(), candidates.best_pair_cost() / 2):
        cheapest = np.minimum(cheapest, share.min(axis=1, initial=np.inf))
    return float(cheapest[np.isfinite(cheapest)].sum())


# --- the matching -----------------------------------------------------------------------------------------------------


def _match(candidates: Candidates, penalties: Floats, budget: TimeBudget) -> Matching:
    """Partners of pending jobs 0..n-1, seats n..n+s-1 and the waiting places after them; cost with penalties."""
    n, s = len(candidates.pending), len(candidates.seats)
    if n and n + s > LARGE_PROBLEM:
        matching = _match_with_fewest_waiting(candidates, penalties, budget)
        if matching is not None:
            return matching
    # Where every job may start alone everywhere, each empty device serves at least one job.
    starts_anywhere = all(np.isfinite(cost).all() for cost in candidates.solo_cost.values())
    waiting_places = max(0, n - candidates.max_new_devices) if starts_anywhere else n
    return _match_with_waiting_places(candidates, penalties, waiting_places, budget)


def _match_with_fewest_waiting(candidates: Candidates, penalties: Floats, budget: TimeBudget) -> Matching | None:
    """The same at low penalties, where every device takes two jobs, every seat one, and the lightest jobs wait; None
    where that is not so.

    No less weight than that of the lightest jobs can wait, so penalties just above the costs suffice. Penalties above
    all sums of costs make the search for the device limit's price up to a hundred times slower.
    """
    n, s = len(candidates.pending), len(candidates.seats)
    relative_weight = penalties / penalties.min()
    waiting_places = max(0, n - s - 2 * candidates.max_new_devices)
    tables = (*(cost[:, None] for cost in candidates.solo_cost.values()), candidates.seat_cost())
    tables += (candidates.best_pair_cost(),)
    cost_span = max(float(np.max(np.abs(t), where=np.isfinite(t), initial=0.0)) for t in tables)
    low_penalties = (1.0 + CHANGED_COSTS * cost_span) * relative_weight
    matching = _match_with_waiting_places(candidates, low_penalties, waiting_places, budget)
    if matching.status is SolveStatus.INFEASIBLE:
        return None
    waits = np.asarray(matching.mate[:n]) >= n + s
    lightest = np.sort(relative_weight)[:waiting_places].sum()
    if relative_weight[waits].sum() > lightest * (1 + RELATIVE_TOLERANCE):
        return None
    raised = float((penalties - low_penalties)[waits].sum())
    return replace(matching, cost=matching.cost + raised, lower_bound=matching.lower_bound + raised)


def _match_with_waiting_places(
    candidates: Candidates, penalties: Floats, waiting_places: int, budget: TimeBudget
) -> Matching:
    """The matching with so many waiting places; INFEASIBLE where more jobs would have to wait."""
    n, s = len(candidates.pending), len(candidates.seats)
    size = n + s + waiting_places
    cost = np.full((size, size), np.inf)
    cost[:n, :n] = candidates.best_pair_cost()
    cost[:n, n : n + s] = candidates.seat_cost()
    cost[:n, n + s :] = penalties[:, None]
    cost[n:, :n] = cost[:n, n:].T
    solo = np.zeros(size)
    solo[:n] = candidates.best_solo_cost()
    time_limit_s = None if budget.unlimited else max(MIN_SEARCH_S, budget.remaining_s)
    max_devices = candidates.max_new_devices + s + waiting_places
    return match_pairs(cost, solo, max_devices=max_devices, time_limit_s=time_limit_s)


# --- from the matching to devices -------------------------------------------------------------------------------------


def _placement_of_matching(candidates: Candidates, penalties: Floats, matching: Matching) -> Placement:
    """The matching's groups on devices; optimal where each got the class at whose cost the matching priced it."""
    n, s = len(candidates.pending), len(candidates.seats)
    seat_starts: list[Start] = []
    groups: list[tuple[int, ...]] = []  # that need an empty device
    for i, j in enumerate(matching.mate[:n].tolist()):
        if n <= j < n + s:
            seat_starts.append(Start(members=(i,), seat=j - n))
        elif j == i:
            groups.append((i,))
        elif i < j < n:
            groups.append((i, j))
    devices = _assign_devices(candidates, penalties, groups)
    device_starts = [Start(members=group, device=k) for group, k in zip(groups, devices, strict=True) if k >= 0]
    starts = (*seat_starts, *device_starts)
    placement = placement_from(candidates, penalties, starts, lower_bound=matching.lower_bound)
    if placement.total - placement.lower_bound > RELATIVE_TOLERANCE * max(abs(placement.total), matching.cost):
        return placement
    return placement_from(candidates, penalties, starts, lower_bound=placement.total, is_optimal=True)


def _assign_devices(candidates: Candidates, penalties: Floats, groups: list[tuple[int, ...]]) -> list[int]:
    """The empty device of each group, -1 for none; devices of one class are interchangeable."""
    if not groups or len(candidates.pair_tables) < 2:
        return list(range(len(groups)))
    group_cost = {
        device_class: np.array(
            [
                candidates.pair_tables[device_class].cost[group]
                if len(group) == 2
                else candidates.solo_cost[device_class][group[0]]
                for group in groups
            ],
            dtype=np.float64,
        )
        for device_class in candidates.pair_tables
    }
    cost = np.stack([group_cost[device_class] for device_class in candidates.empty_classes], axis=1)
    hold = np.array([penalties[list(group)].sum() for group in groups])
    return [int(k) for k in assign_seats(cost, hold).seat]
