"""What a site adds to decisions: objectives and rules of other packages, as far as its server's settings name them.

A request may name one of the enabled objectives; rules hold for every request. Law: nothing is loaded that no setting
names, whatever a request says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from interfere.errors import InvalidInputError, Violation
from interfere.policy.costs.objectives import Objective, named_objective
from interfere.policy.rules.custom import SharingRule, named_rule
from interfere.records import ObjectiveKind, RankQuery, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePolicy:
    """The objectives that requests may name, the one of requests that name none, and the rules of all requests."""

    default: Objective | None = None  # None: interfere's own
    objectives: Mapping[str, Objective] = field(default_factory=dict)
    rules: tuple[SharingRule, ...] = ()

    @classmethod
    def of_names(cls, default: str, objectives: str, rules: str) -> "SitePolicy":
        """Load what settings name, names with commas between them.

        Raises InvalidInputError for an unknown name, UnfitError for a broken package.
        """
        loaded = {name: found for name in _names(objectives) if (found := named_objective(name)) is not None}
        return cls(
            default=named_objective(default),
            objectives=loaded,
            rules=tuple(named_rule(name) for name in _names(rules)),
        )

    def objective_of(self, request: Snapshot | RankQuery) -> Objective | None:
        """Return the objective of another package that decides a request; None where one of ours does.

        Raises InvalidInputError where the request names one that is not enabled, or two objectives.
        """
        name = request.objective_name
        has_terms = isinstance(request, Snapshot) and bool(request.objective_terms)
        is_unnamed = request.objective is ObjectiveKind.AUTO and not has_terms
        if not name:
            return self.default if is_unnamed else None
        if not is_unnamed:
            raise _refused(name, "stands beside another objective", "send objective_name alone")
        if name not in self.objectives:
            enabled = ", ".join(self.objectives) or "none"
            raise _refused(
                name, "is no objective that this server enables", f"its setting `objectives` names: {enabled}"
            )
        return self.objectives[name]


NO_ADDITIONS = SitePolicy()


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def _refused(name: str, what: str, remedy: str) -> InvalidInputError:
    violation = Violation(field="objective_name", what=what, value=repr(name[:100]), remedy=remedy)
    return InvalidInputError.from_violations([violation])
