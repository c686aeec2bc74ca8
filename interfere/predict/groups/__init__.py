"""Slowdowns of jobs beside several others, composed from those of their pairs; where windows of groups lead them."""

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
