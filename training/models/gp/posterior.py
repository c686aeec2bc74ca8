"""The posterior mean of the Gaussian process, as the arrays that predictions and exported graphs read.

With i beside j on domain d, M and P the kernels of two job spaces against the `m` training jobs:

    log ŝ = level[d] + M(i) · victim + M(j) · neighbour + P(i) · both · P(j) + own[d, i] + from_neighbour[d, j]
        + u[d, i] · w[d, j]
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.predict.novelty import JobSpace, pair_novelty
from interfere.training.dataset import PairRows

Floats = NDArray[np.float64]

CHUNK_ROWS = 16_384  # rows predicted at once: four kernel rows of 700 known jobs each take 370 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class GpPosterior:
    """Sums of the solved system over the training rows. `m` distinct encoded jobs, `D` domains, `N` workloads."""

    job_columns: int  # F
    pair_columns: int  # f
    main_space: JobSpace  # of M, the kernel of the effects of one job by itself
    interaction_space: JobSpace  # of P, the kernel of the interaction of two jobs
    level: Floats  # float64[D + 1]: mean log slowdown of each domain; 0 is a domain that training never saw
    victim: Floats  # float64[m]
    neighbour: Floats  # float64[m]
    both: Floats  # float64[m, m]
    own: Floats  # float64[D + 1, N + 1]: effect of a workload's identity as victim
    from_neighbour: Floats  # float64[D + 1, N + 1]: effect of a workload's identity as neighbour
    u: Floats  # float64[D + 1, N + 1, R]: factors of its identity as the victim (`low_rank`); R is 0 without them
    w: Floats  # float64[D + 1, N + 1, R]: factors of its identity as the neighbour

    def novelty(self, rows: PairRows) -> Floats:
        """Return the novelty of each pair, float64[p] in [0, 1]."""
        victims, neighbours = self._jobs(rows)
        return pair_novelty(self.interaction_space.novelty(victims), self.interaction_space.novelty(neighbours))

    def predict(self, rows: PairRows) -> Floats:
        """Return the predicted log slowdowns of the rows, float64[p], computed in chunks to bound memory."""
        starts = range(0, len(rows), CHUNK_ROWS)
        chunks = [self._predict(rows.take(np.arange(k, min(k + CHUNK_ROWS, len(rows))))) for k in starts]
        return np.concatenate([np.zeros(0), *chunks])

    def _predict(self, rows: PairRows) -> Floats:
        """Return the predictions for the rows of one chunk, float64[p]."""
        victims, neighbours = self._jobs(rows)
        main, interaction = self.main_space, self.interaction_space
        interactions = ((interaction.kernel(victims) @ self.both) * interaction.kernel(neighbours)).sum(axis=1)
        identities = self.own[rows.domain, rows.victim] + self.from_neighbour[rows.domain, rows.neighbour]
        main_effects = main.kernel(victims) @ self.victim + main.kernel(neighbours) @ self.neighbour
        interplay = (self.u[rows.domain, rows.victim] * self.w[rows.domain, rows.neighbour]).sum(axis=1)
        return np.asarray(self.level[rows.domain] + main_effects + interactions + identities + interplay)

    def _jobs(self, rows: PairRows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the job columns of victims and of neighbours, float32[p, F] each."""
        width = self.job_columns
        return rows.pairs[:, :width], rows.pairs[:, width : 2 * width]


# Picked once, for both public tables, on unseen pairs and jobs.
KNOWN, NOVEL = 0.9, 1 / 3
NOVELTY_START, NOVELTY_END = 0.05, 0.2  # held-out jobs of known families lie mostly below, of new families above


def gp_weight(novelty: Any) -> Any:
    """Return the weight of the Gaussian process in the ensemble, elementwise for an array or a tensor of novelties.

    The trees get 1 - weight. Beside known jobs the Gaussian process predicts better than the trees. For jobs far from
    all known ones it falls back to the overall mean, while the trees fall back to the nearest known case, which errs
    less. So its weight falls with the pair's novelty:

        KNOWN - (KNOWN - NOVEL) · clip((novelty - NOVELTY_START) / (NOVELTY_END - NOVELTY_START), 0, 1)
    """
    return KNOWN - (KNOWN - NOVEL) * ((novelty - NOVELTY_START) / (NOVELTY_END - NOVELTY_START)).clip(0.0, 1.0)
