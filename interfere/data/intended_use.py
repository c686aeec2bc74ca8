"""What the measured pairs of one device type and sharing mode may be used for, and what not.

A domain is complete where most ordered pairs of its jobs were measured. Below that, the table says what is missing:
two different jobs were never run together, only one direction was measured, or the pairs are too few for own levels.
"""

from dataclasses import dataclass
from enum import StrEnum

from interfere.data.quality import MIN_ICC, domain_tables, table_quality
from interfere.data.tables import Table

MIN_PAIRS_ALONE = 10  # unordered pairs that a training of its own needs
CALIBRATION_PAIRS = 20  # unordered pairs after which a domain's levels are its own, beside a large table of another
DENSE_SHARE = 0.5  # of all ordered pairs, from which a completion of the matrix is worth its name


class Limitation(StrEnum):
    """A gap in a table, with the uses that it rules out."""

    SELF_PAIRS_ONLY = (
        "only copies of one job were run together: may say whether a job shares with a copy of itself; says nothing "
        "about two different jobs"
    )
    TOO_FEW_TO_TRAIN = (
        "too few pairs for a model of its own: may calibrate the levels of a model that was trained on another device "
        "type; rankings of pairs that were not measured are those of the other device type"
    )
    LEVELS_BORROWED = (
        "fewer pairs than levels of its own need: predictions lean on other tables, and their intervals are too narrow"
    )
    ONE_DIRECTION = "most pairs were measured in one direction: what a job does to others is known of few"
    NOISE = "repeated blocks disagree: training refuses it; measure longer blocks, or on a quieter machine"
    NO_FACTS = "most jobs have no step time alone: jobs that were not measured in pairs cannot be told apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntendedUse:
    """The amount of measurements in a domain, and the uses that they support."""

    domain: str  # device type, mode, and metric where several
    jobs: int
    measured: int  # valid ordered pairs
    possible: int  # ordered pairs of its jobs
    limitations: tuple[Limitation, ...]

    def text(self) -> str:
        """Return the measurements and their uses as a line of text."""
        share = f"{self.measured} of {self.possible} ordered pairs of {self.jobs} jobs"
        if self.limitations:
            return f"{self.domain}: {share}. {'; '.join(self.limitations)}"
        kind = "a completion of the matrix" if self.measured >= DENSE_SHARE * self.possible else "predictions"
        return f"{self.domain}: {share}: may train a model of its own, for {kind} and for unseen jobs like these"


def intended_uses(table: Table) -> tuple[IntendedUse, ...]:
    """Return the intended use of each domain of a table, in order of the domains' names."""
    return tuple(_of_domain(title, domain_table) for title, domain_table in domain_tables(table))


def _of_domain(title: str, table: Table) -> IntendedUse:
    pairs = table.ok_pairs
    names = {name for pair in pairs for name in (pair.victim, pair.neighbour)}
    ordered = {(pair.victim, pair.neighbour) for pair in pairs}
    unordered = {tuple(sorted(pair)) for pair in ordered}
    mixed = {(a, b) for a, b in ordered if a != b}
    with_step_time = sum(job.step_time_s == job.step_time_s for job in table.jobs if job.workload in names)
    found = []
    if ordered and not mixed:
        found.append(Limitation.SELF_PAIRS_ONLY)
    if len(unordered) < MIN_PAIRS_ALONE:
        found.append(Limitation.TOO_FEW_TO_TRAIN)
    elif len(unordered) < CALIBRATION_PAIRS:
        found.append(Limitation.LEVELS_BORROWED)
    if mixed and 2 * sum((b, a) in mixed for a, b in mixed) < len(mixed):
        found.append(Limitation.ONE_DIRECTION)
    if table_quality(table).icc < MIN_ICC:
        found.append(Limitation.NOISE)
    if names and 2 * with_step_time < len(names):
        found.append(Limitation.NO_FACTS)
    return IntendedUse(
        domain=title, jobs=len(names), measured=len(ordered), possible=len(names) ** 2, limitations=tuple(found)
    )
