"""The smallest field: a level, one effect of each job as victim, and one as neighbour, in the units of the values."""

import numpy as np

from interfere.predict.field.gaussian import condition
from interfere.predict.field.terms import FLAT_VARIANCE, Floats, Ints, Rows, indicator


def additive_effects(
    values: Floats,
    victims: Ints,
    neighbours: Ints,
    *,
    jobs: int,
    shrinkage: float,
    weights: Floats | None = None,
    level: float | None = None,
) -> tuple[float, Floats, Floats]:
    """Return the level and the effects of each of n jobs as victim and as neighbour, float64[n] each.

    `victims`, `neighbours` int64[p]: jobs, from 0. `shrinkage` in rows: an effect measured once keeps
    1 / (1 + shrinkage) of its measured size; a job without a row has none. A `level` that is given is kept; else it is
    fitted, without shrinkage.
    """
    weights = np.ones(len(values)) if weights is None else weights
    mean = level if level is not None else float(np.average(values, weights=weights))
    rows = Rows(values=values - mean, noise_var=np.ones(len(values)), weights=weights)
    terms = [indicator("own", victims, jobs, 1.0 / shrinkage), indicator("harm", neighbours, jobs, 1.0 / shrinkage)]
    if level is None:
        terms.append(indicator("level", np.zeros_like(victims), 1, FLAT_VARIANCE))
    posterior = condition(rows, terms)
    own, harm = (posterior.levels(name)[0] for name in ("own", "harm"))
    return mean + (float(posterior.levels("level")[0][0]) if level is None else 0.0), own, harm
