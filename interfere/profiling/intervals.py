"""Combines the slowdowns of several blocks into one with its 95 % interval, and decides when that is narrow enough.

Every block says how well it knows its slowdown, so a disturbed block weighs little. Whether blocks agree as well as
they say is known better from all rows of a table than from the two or three blocks of one: the scale factor of a row's
error (Particle Data Group, Review of Particle Physics, section 5.2.2; Birge 1932) is estimated over the table, and that
of a row is drawn to it with the weight of `PRIOR_BLOCKS` further blocks. Slowdowns are ratios, so means and intervals
are taken of their logarithms.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TARGET_HALF_WIDTH = 0.03  # of the mean log slowdown: no further block is measured below it
BLOCK_ERROR = 0.01  # assumed of every block on top of what its slices say; the scale factor corrects it
PRIOR_BLOCKS = 8

# 97.5 % quantiles of Student's t, degrees of freedom 1-30 (any statistics text, e.g. NIST handbook 1.3.6.7.2).
T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
NORMAL_975 = 1.96  # the same quantile beyond the table


@dataclass(frozen=True, slots=True)
class BlockEstimate:
    """The slowdown of a job in a block, with its standard error."""

    slowdown: float  # of copies of the job, the geometric mean
    log_error: float  # standard error of its logarithm, as its slices say

    @property
    def weight(self) -> float:
        """The weight of the block in a mean over blocks: the inverse of its variance."""
        return 1.0 / (self.log_error**2 + BLOCK_ERROR**2)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the exponential of the mean logarithm; NaN for no values."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def mean_slowdown(blocks: Sequence[BlockEstimate]) -> float:
    """Return the geometric mean of the blocks' slowdowns, weighted by inverse variance; NaN for no blocks."""
    total = sum(block.weight for block in blocks)
    if not total:
        return math.nan
    return math.exp(sum(block.weight * math.log(block.slowdown) for block in blocks) / total)


def _squared_deviations(blocks: Sequence[BlockEstimate]) -> float:
    """Return the sum of squared deviations of the blocks from their mean in units of their errors (chi square)."""
    centre = math.log(mean_slowdown(blocks)) if blocks else 0.0
    return sum(block.weight * (math.log(block.slowdown) - centre) ** 2 for block in blocks)


def scale_factor(rows: Iterable[Sequence[BlockEstimate]]) -> float:
    """Return the factor by which blocks of a table differ more than their errors predict; at least 1."""
    rows = [blocks for blocks in rows if len(blocks) > 1]
    degrees = sum(len(blocks) - 1 for blocks in rows)
    squares = sum(map(_squared_deviations, rows))
    return max(1.0, math.sqrt((squares + PRIOR_BLOCKS) / (degrees + PRIOR_BLOCKS)))


def log_half_width(blocks: Sequence[BlockEstimate], scale: float = 1.0) -> float:
    """Return half the width of the 95 % interval of the mean log slowdown; infinite for no blocks."""
    if not blocks:
        return math.inf
    degrees = PRIOR_BLOCKS + len(blocks) - 1
    row_scale = math.sqrt((PRIOR_BLOCKS * scale**2 + _squared_deviations(blocks)) / degrees)
    quantile = T_975[degrees - 1] if degrees <= len(T_975) else NORMAL_975
    return quantile * max(1.0, row_scale) / math.sqrt(sum(block.weight for block in blocks))


def has_converged(blocks_per_side: Sequence[Sequence[BlockEstimate]]) -> bool:
    """Return whether the interval of every side is narrower than the target."""
    return all(log_half_width(blocks) < TARGET_HALF_WIDTH for blocks in blocks_per_side)
