"""What a site must collect for which accuracy: the same models on all facts of the jobs, and on fewer.

`utilisation` keeps what a site can collect without profiling: step times, monitoring counters and memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from interfere.data.facts import STATIC, STATIC_SUFFIX, combine_profiles, split_static
from interfere.data.tables import Table
from interfere.features.job import UTILISATION_COLUMNS
from interfere.features.pair import FeatureEncoder


class FactSet(StrEnum):
    """Which facts of a profile the models may read."""

    ALL = "all"
    MEASURED = "without-static"  # without what was traced from the architecture that a name stands for
    UTILISATION = "utilisation"


@dataclass(frozen=True, slots=True, kw_only=True)
class AblatedTables:
    """Tables and encoder that show one fact set only."""

    facts: FactSet
    tables: tuple[Table, ...]
    encoder: FeatureEncoder


def ablate_facts(tables: Sequence[Table], fact_sets: Sequence[FactSet] = tuple(FactSet)) -> tuple[AblatedTables, ...]:
    """The tables under each fact set; `without-static` only where the tables have static facts."""
    measured = tuple(map(_without_static, tables))
    has_static = any(job.source.endswith(STATIC_SUFFIX) for table in tables for job in table.jobs)
    ablations = (
        AblatedTables(facts=FactSet.ALL, tables=tuple(tables), encoder=FeatureEncoder()),
        AblatedTables(facts=FactSet.MEASURED, tables=measured, encoder=FeatureEncoder()),
        AblatedTables(
            facts=FactSet.UTILISATION, tables=measured, encoder=FeatureEncoder(visible_columns=UTILISATION_COLUMNS)
        ),
    )
    return tuple(
        ablation
        for ablation in ablations
        if ablation.facts in fact_sets and (has_static or ablation.facts is not FactSet.MEASURED)
    )


def _without_static(table: Table) -> Table:
    """The table without what was traced; a job of which nothing else is known keeps its trace."""
    rows = [part for row in table.profiles for part in split_static(row)]
    measured = {(row.workload, row.device_type) for row in rows if row.source != STATIC}
    kept = [row for row in rows if row.source != STATIC or (row.workload, row.device_type) not in measured]
    combined = combine_profiles(kept)
    return replace(table, jobs=combined.jobs, sources=combined.sources)
