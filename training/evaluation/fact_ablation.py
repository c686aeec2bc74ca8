"""What a site must gather for how good a prediction: the same models on all facts, and on fewer.

`utilisation` is what a site has that changes nothing: step times, monitoring counters and memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from features.job import UTILISATION
from features.pair import Encoder
from interfere.data.tables import Table
from interfere.profiling.static.profiles import STATIC_SUFFIX, without_static


class Facts(StrEnum):
    """Which facts of a profile the models may read."""

    ALL = "all"
    MEASURED = "without-static"  # nothing traced from the architecture that a name stands for
    UTILISATION = "utilisation"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Tables and encoder as one choice of facts leaves them."""

    facts: Facts
    tables: tuple[Table, ...]
    encoder: Encoder


def views(tables: Sequence[Table], wanted: Sequence[Facts] = tuple(Facts)) -> tuple[View, ...]:
    """One view a choice; `without-static` only where there are static facts to leave out."""
    bare = tuple(replace(table, jobs=tuple(map(without_static, table.jobs))) for table in tables)
    static = any(job.source.endswith(STATIC_SUFFIX) for table in tables for job in table.jobs)
    found = {
        Facts.ALL: View(facts=Facts.ALL, tables=tuple(tables), encoder=Encoder()),
        Facts.MEASURED: View(facts=Facts.MEASURED, tables=bare, encoder=Encoder()),
        Facts.UTILISATION: View(facts=Facts.UTILISATION, tables=bare, encoder=Encoder(only=UTILISATION)),
    }
    return tuple(view for name, view in found.items() if name in wanted and (static or name is not Facts.MEASURED))
