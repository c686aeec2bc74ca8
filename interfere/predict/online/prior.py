"""What is known about the model's errors before the first observation: fitted at training time, read by the server.

e = log(measured) - log(model) of victim v beside neighbour c is modelled as ::

    e = phi(v, c) · own[v] + psi(v, c) · aggressor[c] + pair[v, c] + noise
    phi(v, c) = [1, log ŝ - centre, z[c]]        psi(v, c) = [1, log ŝ - centre, z[v]]

own and aggressor are vectors of a job, normal around 0; z[·] is the signature of a job that was in training (0 for any
other): the leading principal components of what it did to, and suffered from, everybody else. The spread of pair and
noise grows with ŝ: errors of a speed are of one size, so those of its logarithm are as large as the slowdown.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from interfere.errors import ModelError

FILE = "residual.npz"
Floats = NDArray[np.float64]
Home = tuple[str, str, str]  # workload, device type, mode
SCALED = (-1.0, 1.5)  # of log ŝ around the centre: slowdowns of 1/2 to 6 with the usual centre .3


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePrior:
    """Covariances of a job's effect vector, float64[d, d]: of a job that training never saw, and of one it saw."""

    new: Floats
    known: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualPrior:
    """Everything the online correction starts from. `d` = 2 + length of a signature."""

    centre: float  # mean log ŝ in training
    own: RolePrior
    aggressor: RolePrior
    pair_var: float  # of what is special about one pair, at log ŝ = centre
    noise_var: float  # of one window, at log ŝ = centre
    signatures: Mapping[Home, Floats]  # float64[q] of every job of training
    means: Mapping[tuple[str, str], float]  # mean log slowdown by (device type, mode)
    victim_effect: Mapping[Home, float]  # what a job of training suffers more than the mean
    neighbour_effect: Mapping[Home, float]  # what it adds to others

    @property
    def width(self) -> int:
        """Length d of an effect vector."""
        return len(self.own.new)

    def signature(self, home: Home) -> Floats:
        """float64[q]; zeros for a job that training never saw."""
        found = self.signatures.get(home)
        return np.zeros(self.width - 2) if found is None else found

    def scale(self, log_predicted: Floats) -> Floats:
        """Variance of pair and noise relative to that at `centre`; bounded, so that a wild prediction is still used."""
        return np.exp(2 * np.clip(log_predicted - self.centre, *SCALED))

    def scale_of(self, log_predicted: float) -> float:
        """The same of one number."""
        return math.exp(2 * min(max(log_predicted - self.centre, SCALED[0]), SCALED[1]))

    def cold(self, victim: str, neighbour: str, device_type: str, mode: str) -> float:
        """Log slowdown where a job has no profile: mean of the domain and what its company usually does; NaN if new."""
        mean = self.means.get((device_type, mode), math.nan)
        suffered = self.victim_effect.get((victim, device_type, mode), 0.0)
        return mean + suffered + self.neighbour_effect.get((neighbour, device_type, mode), 0.0)

    def cold_var(self, role: str) -> float:
        """Variance between jobs of what one suffers (`own`) or adds (`aggressor`): what a cold job is off by."""
        effects = list((self.victim_effect if role == "own" else self.neighbour_effect).values())
        return float(np.var(effects)) if effects else 0.0


# For model folders without one. Variances of log errors on unseen jobs of the public tables, rounded: the mean error of
# a job has .007 (own) and .023 (aggressor) on Gavel, .003 and .001 on Lucid; slopes .05-.18; within a job .003-.005.
# A job of training is off by about a tenth of that.
def default_prior() -> ResidualPrior:
    """Own and aggressor effects of usual size, no signatures, no means."""
    new = np.diag([0.01, 0.05])
    return ResidualPrior(
        centre=0.3,
        own=RolePrior(new=new, known=new / 10),
        aggressor=RolePrior(new=new / 2, known=new / 20),
        pair_var=0.004,
        noise_var=0.001,
        signatures={},
        means={},
        victim_effect={},
        neighbour_effect={},
    )


def prior_arrays(prior: ResidualPrior) -> dict[str, NDArray[np.generic]]:
    """Arrays of one .npz without pickles; `read_prior` reads them back."""
    homes = sorted(prior.signatures)
    return {
        "scalars": np.array([prior.centre, prior.pair_var, prior.noise_var]),
        "own": np.stack([prior.own.new, prior.own.known]),
        "aggressor": np.stack([prior.aggressor.new, prior.aggressor.known]),
        "homes": np.array(homes, dtype=np.str_).reshape(len(homes), 3),
        "signatures": np.array([prior.signatures[home] for home in homes]).reshape(len(homes), prior.width - 2),
        "effects": np.array([(prior.victim_effect[home], prior.neighbour_effect[home]) for home in homes]).reshape(
            -1, 2
        ),
        "domains": np.array(sorted(prior.means), dtype=np.str_).reshape(-1, 2),
        "means": np.array([prior.means[domain] for domain in sorted(prior.means)]),
    }


def read_prior(folder: Path) -> ResidualPrior:
    """The prior of a model folder, or the default when it has none. Raises ModelError when it cannot be read."""
    path = folder / FILE
    if not path.is_file():
        return default_prior()
    try:
        with np.load(path, allow_pickle=False) as arrays:
            homes = [(str(a), str(b), str(c)) for a, b, c in arrays["homes"]]
            centre, pair_var, noise_var = map(float, arrays["scalars"])
            own, aggressor = arrays["own"], arrays["aggressor"]
            effects = arrays["effects"].tolist()
            return ResidualPrior(
                centre=centre,
                own=RolePrior(new=own[0], known=own[1]),
                aggressor=RolePrior(new=aggressor[0], known=aggressor[1]),
                pair_var=pair_var,
                noise_var=noise_var,
                signatures=dict(zip(homes, arrays["signatures"], strict=True)),
                means={
                    (str(a), str(b)): float(mean)
                    for (a, b), mean in zip(arrays["domains"], arrays["means"], strict=True)
                },
                victim_effect={home: row[0] for home, row in zip(homes, effects, strict=True)},
                neighbour_effect={home: row[1] for home, row in zip(homes, effects, strict=True)},
            )
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(
            f"the prior of the online correction cannot be read ({error!r})",
            value=path,
            remedy="publish the model again: interfere train --publish DIR",
        ) from None
