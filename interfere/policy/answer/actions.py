"""The actions, pairs and refusals of a plan: the device of each job, and the rule by which it starts or waits."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from interfere.policy.answer.starts import MAX_REFUSALS, start_alone, start_shared
from interfere.policy.answer.waiting import WaitingRules
from interfere.policy.context import PlanningContext
from interfere.policy.costs.candidates import Candidates
from interfere.policy.costs.pair_costs import PairCosts
from interfere.policy.rules.text import render
from interfere.policy.slowdowns import Domain, PairSlowdown, predicted_pairs
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.policy.solve.starts import StartGroup
from interfere.records import (
    NAN,
    Action,
    Job,
    Refusal,
    Rule,
)


def refuse(job_id: str, partner_id: str, rule: Rule) -> Refusal:
    """Return the refusal of a pair, with the rule that forbids the pair.

    An empty `partner_id` means that the job may not start alone.
    """
    return Refusal(job_id=job_id, partner_id=partner_id, reason=render(rule), rule=rule)


def with_members(rule: Rule, stands_for: tuple[str, str], members: tuple[str, str]) -> Rule:
    """Return a rule about two class representatives (`stands_for`) as a rule about two members of the classes."""
    first, second = stands_for
    if rule.job_id == second != first:  # the rule's job is the second representative
        members = members[::-1]
        first, second = second, first
    job_id = members[0] if rule.job_id == first else rule.job_id
    partner_id = members[1] if rule.partner_id == second else rule.partner_id
    return replace(rule, job_id=job_id, partner_id=partner_id)


class AnswerBuilder:
    """The actions, pairs and refusals that follow from the groups of jobs that a decision starts."""

    def __init__(self, decision: DecisionProblem, groups: Sequence[StartGroup], context: PlanningContext) -> None:
        self._decision, self._candidates, self._groups, self._context = decision, decision.candidates, groups, context
        self._group_of = {job.id: group for group in groups for job in group.jobs}
        self._in_pairs = self._slowdowns_in_pairs()
        self._place_of = {
            job.id: (each, i)
            for each in decision.candidates
            for i, members in enumerate(each.job_classes)
            for job in members
        }
        self._waiting = WaitingRules(decision, groups, context)

    # --- actions ----------------------------------------------------------------------------------------------------

    def actions(self) -> tuple[Action, ...]:
        """Return the action of each pending job, with its reason, in queue order."""
        return tuple(self._action(job) for job in self._context.snapshot.pending if job.id in self._place_of)

    def _action(self, job: Job) -> Action:
        """Return the action of one pending job."""
        candidates, i = self._place_of[job.id]
        group = self._group_of.get(job.id)
        if group is None:
            return self._waiting.action(job, candidates, i)
        if len(group.members) == 1:
            cost = float(candidates.solo_cost[group.device_class][i])
            return start_alone(job, group.devices, self._context, cost=cost)
        return self._start_shared(job, group)

    def _start_shared(self, job: Job, group: StartGroup) -> Action:
        """Return the action that starts a job beside the other members of its group."""
        members, decision = group.members, self._decision
        place = next(k for k, member in enumerate(members) if member.id == job.id)
        slowdowns = decision.slowdowns_of(group.column)
        # Residents come before jobs that start too: the first partner is the resident that the job joins.
        others = sorted((k for k in range(len(members)) if k != place), key=lambda k: k < len(group.jobs))
        if len(others) > 1:
            interval, pair = decision.interval_of(group.column, place), None
        else:
            known = self._in_pairs.get((job.id, members[others[0]].id))
            interval, pair = (known.lower, known.upper) if known else (NAN, NAN), decision.pair_of(group.column)
        return start_shared(
            job,
            group.devices,
            [members[k] for k in others],
            slowdowns[place],
            [slowdowns[k] for k in others],
            cost=float(decision.total_cost.cost[group.column]),
            interval=interval,
            mode=pair[0].mode(*pair[1:]) if pair is not None and pair[0].modes else "",
        )

    def _slowdowns_in_pairs(self) -> dict[tuple[str, str], PairSlowdown]:
        """Return the predicted slowdown of each pending job in a group of two, by its id and its partner's."""
        asked: dict[Domain, list[tuple[Job, Job]]] = {}
        for group in self._groups:
            if len(group.members) == 2:
                table, row, column = self._decision.pair_of(group.column)
                pairs = asked.setdefault((group.device_class.type, table.mode(row, column)), [])
                one, other = group.members
                pairs += [(one, other), (other, one)]
        return predicted_pairs(asked, self._context)

    # --- refusals -----------------------------------------------------------------------------------------

    def refusals(self) -> tuple[tuple[Refusal, ...], int]:
        """Return up to `MAX_REFUSALS` forbidden pairs, waiting jobs first, and the number of all forbidden pairs."""
        listed: dict[frozenset[str], Refusal] = {}
        total = 0
        for candidates in self._candidates:
            for table in self._decision.pair_tables(candidates):
                forbidden, jobs = np.isinf(table.cost), candidates.counts
                pairs = int(jobs @ forbidden @ [len(each) for each in self._decision.partners(candidates, table)])
                total += pairs if table.running else (pairs - int(jobs @ np.diagonal(forbidden))) // 2
                for i in self._waiting_first(candidates):
                    if len(listed) >= MAX_REFUSALS:
                        break
                    for j in np.flatnonzero(forbidden[i]).tolist():
                        self._list_refusals(candidates, table, i, j, listed)
        return tuple(listed.values()), total

    def _waiting_first(self, candidates: Candidates) -> list[int]:
        """Return the indices of the job classes, classes with a waiting job first."""
        starts = [all(job.id in self._group_of for job in members) for members in candidates.job_classes]
        return sorted(range(len(starts)), key=lambda i: starts[i])

    def _list_refusals(
        self, candidates: Candidates, table: PairCosts, i: int, j: int, listed: dict[frozenset[str], Refusal]
    ) -> None:
        """Add the forbidden pairs between job class i and partner class j to `listed`, up to `MAX_REFUSALS` entries."""
        rule: Rule | None = None
        for job_id in (job.id for job in candidates.job_classes[i]):
            for partner_id in (job.id for job in self._decision.partners(candidates, table)[j]):
                pair = frozenset((job_id, partner_id))
                if len(listed) >= MAX_REFUSALS:
                    return
                if len(pair) == 1 or pair in listed:
                    continue
                rule = rule or table.blocking_rule(i, j)
                if rule is None:
                    return
                stands_for = (table.rows.jobs[i].id, table.columns.jobs[j].id)
                listed[pair] = refuse(job_id, partner_id, with_members(rule, stands_for, (job_id, partner_id)))
