"""The weight of the Gaussian process in the ensemble's prediction, as a function of the novelty of the pair.

Beside known jobs the Gaussian process predicts better than the trees. For jobs far from all known ones it falls back to
the overall mean, while the trees fall back to the nearest known case, which errs less. So its weight falls with the
pair's novelty:

    weight = KNOWN - (KNOWN - NOVEL) · clip((novelty - NOVELTY_START) / (NOVELTY_END - NOVELTY_START), 0, 1)
"""

from typing import Any

# Picked once, for both public tables, on unseen pairs and jobs.
KNOWN, NOVEL = 0.9, 1 / 3
NOVELTY_START, NOVELTY_END = 0.05, 0.2  # held-out jobs of known families lie mostly below, of new families above


def gp_weight(novelty: Any) -> Any:
    """Return the weight of the Gaussian process, elementwise for an array or a tensor; the trees get 1 - weight."""
    return KNOWN - (KNOWN - NOVEL) * ((novelty - NOVELTY_START) / (NOVELTY_END - NOVELTY_START)).clip(0.0, 1.0)
