"""How much of an ensemble's answer the Gaussian process gives, by how new the pair is.

Beside known jobs the Gaussian process is the better half; far from them it falls back to the mean of everything, and
the trees, which fall back to the nearest known case, are the safer one. So its share falls with the pair's novelty:

    share = NEAR - (NEAR - FAR) · clip((novelty - NOVEL_FROM) / (NOVEL_TO - NOVEL_FROM), 0, 1)
"""

from typing import Any

# Picked once, for both public tables and all splits: 2:1 beside known jobs and 1:2 far from them.
NEAR, FAR = 2 / 3, 1 / 3
NOVEL_FROM, NOVEL_TO = 0.05, 0.2  # held-out jobs of known families lie mostly below, those of new families above


def gp_share(novelty: Any) -> Any:
    """Weight of the Gaussian process, elementwise, of an array or a tensor; the trees get the rest."""
    return NEAR - (NEAR - FAR) * ((novelty - NOVEL_FROM) / (NOVEL_TO - NOVEL_FROM)).clip(0.0, 1.0)
