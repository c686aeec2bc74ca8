"""Composes slowdowns of job groups from pair slowdowns, and infers pair slowdowns from observed groups."""

from interfere.predict.groups.answers import compose_groups, total_memory_share
from interfere.predict.groups.composition import (
    DEFAULT_COMPOSITION,
    ComposesGroups,
    CopyShares,
    GroupComposition,
    composed_slowdown,
    composition_of,
    pair_excess,
)

__all__ = [
    "DEFAULT_COMPOSITION",
    "ComposesGroups",
    "CopyShares",
    "GroupComposition",
    "compose_groups",
    "composed_slowdown",
    "composition_of",
    "pair_excess",
    "total_memory_share",
]
