"""What the field is made of: rows that were seen, and terms, the kinds of effects that add up in every row.

A term is data: which group (a job, a pair of families, a reporter, a device) each row belongs to, how strongly it loads
on the effects of that group, and the normal prior of the effects.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

ABSENT = -1  # group of a row that a term says nothing of
FLAT_VARIANCE = 1e6  # of effects around a rough guess of theirs: as good as unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One kind of effect: `g` groups with `d` effects each, in `p` rows."""

    name: str
    groups: Ints  # int64[p], from 0; ABSENT where the term says nothing of the row
    loadings: Floats  # float64[p, d]
    covariance: Floats  # float64[g, d, d]: prior covariance of the effects of each group
    mean: Floats | None = None  # float64[g, d]: prior mean; None for 0
    labels: tuple[Any, ...] = ()  # of the groups, for whoever reads the posterior
    prior_groups: float = math.inf  # groups that the prior variance is worth when it is learned; infinity: it is fixed
    is_shared: bool = True  # one variance for all groups, or one each
    is_full: bool = False  # whether the whole covariance is learned, the same of all groups; else a scale of it
    start: Floats | None = None  # float64[g]: variances from which learning starts, where each group has its own
    is_answer: bool = True  # False for a nuisance: an effect of who reported, not of what is asked
    is_bounded: bool = False  # of the sum of all bounded terms, a row shows at least its bound

    @property
    def size(self) -> int:
        """Return the number of effects, g · d."""
        groups, width = self.covariance.shape[:2]
        return int(groups * width)

    def prior_means(self) -> Floats:
        """Return float64[p]: what the prior means of the term add up to in each row."""
        if self.mean is None:
            return np.zeros(len(self.groups))
        values = (self.loadings * self.mean[self.groups]).sum(axis=1)
        return np.where(self.groups >= 0, values, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What was seen: `p` values with the variance of their noise, and the weight of each as evidence."""

    values: Floats  # float64[p]
    noise_var: Floats  # float64[p], prior: what it is expected to be
    weights: Floats  # float64[p], in (0, 1]: the variance of the noise is divided by it
    bounds: Floats | None = None  # float64[p]: the least that a row shows of its bounded terms; None: there is none

    def __len__(self) -> int:
        return len(self.values)


def indicator(name: str, groups: Ints, count: int, variance: float) -> Term:
    """Return the term of one effect a group, on which each row of the group loads with 1."""
    ones, covariance = np.ones((len(groups), 1)), np.full((count, 1, 1), variance)
    return Term(name=name, groups=groups, loadings=ones, covariance=covariance)
