"""Prior of the model's errors (residuals) before the first observation: fitted in training, read by the server.

e = log(measured) - log(model) of victim v beside neighbour c is modelled as ::

    e = phi(v, c) · as_victim[v] + psi(v, c) · as_neighbour[c] + pair[v, c] + noise
    phi(v, c) = [1, log ŝ - centre, z[c]]        psi(v, c) = [1, log ŝ - centre, z[v]]

as_victim and as_neighbour are effect vectors of a job in either role, normal around 0. z[·] is the signature of a job
of the training data (0 for any other): the leading principal components of the slowdowns it caused and suffered. The
standard deviation of pair and noise grows with ŝ: errors of a speed have a constant size, so errors of its logarithm
are proportional to the slowdown.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError, ModelError
from interfere.sharing_modes import SharingMode, parse_sharing_mode

PRIOR_FILE = "residual.npz"
Floats = NDArray[np.float64]
WorkloadKey = tuple[str, str, SharingMode]  # workload, device type, mode
SCALE_RANGE = (-1.0, 1.5)  # range of log ŝ around the centre: slowdowns of 1/2 to 6 with the usual centre .3


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePrior:
    """Covariances of a job's effect vector in one role, float64[d, d] each."""

    unseen: Floats  # of a job that training never saw
    seen: Floats
    new_family: Floats  # of a job whose whole family training never saw


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualPrior:
    """Everything the online correction starts from. `d` = 2 + length of a signature."""

    centre: float  # mean log ŝ in training
    as_victim: RolePrior
    as_neighbour: RolePrior
    pair_var: float  # variance of the effect of one pair, at log ŝ = centre
    noise_var: float  # variance of the noise of one window, at log ŝ = centre
    signatures: Mapping[WorkloadKey, Floats]  # float64[q] of every job of the training data
    means: Mapping[tuple[str, SharingMode], float]  # mean log slowdown by (device type, mode)
    victim_effect: Mapping[WorkloadKey, float]  # mean log slowdown of a workload minus the domain's mean
    neighbour_effect: Mapping[WorkloadKey, float]  # the same of the jobs beside it
    families: frozenset[str] = frozenset()  # of the jobs of the training data

    @property
    def width(self) -> int:
        """Length d of an effect vector."""
        return len(self.as_victim.unseen)

    def signature(self, key: WorkloadKey) -> Floats:
        """float64[q]: signature of a workload; zeros when training never saw it."""
        signature = self.signatures.get(key)
        return np.zeros(self.width - 2) if signature is None else signature

    def variance_scale(self, log_predicted: Floats) -> Floats:
        """Variance of pair and noise relative to that at `centre`, elementwise; bounded, whatever is predicted."""
        return np.exp(2 * np.clip(log_predicted - self.centre, *SCALE_RANGE))

    def variance_scale_of(self, log_predicted: float) -> float:
        """The same for one number."""
        return math.exp(2 * min(max(log_predicted - self.centre, SCALE_RANGE[0]), SCALE_RANGE[1]))

    def unprofiled_log_slowdown(self, victim: str, neighbour: str, device_type: str, mode: SharingMode) -> float:
        """Log slowdown of a pair with an unprofiled job, from means of domain and workloads; NaN for a new domain."""
        mean = self.means.get((device_type, mode), math.nan)
        suffered = self.victim_effect.get((victim, device_type, mode), 0.0)
        return mean + suffered + self.neighbour_effect.get((neighbour, device_type, mode), 0.0)

    def unprofiled_var(self, role: str) -> float:
        """Return the variance of the mean effect between workloads, in the role "victim" or "neighbour".

        It is the prior variance of a job without a profile.
        """
        effects = list((self.victim_effect if role == "victim" else self.neighbour_effect).values())
        return float(np.var(effects)) if effects else 0.0


# Variances of log errors on unseen jobs of the public tables, rounded: the mean error of a job has .007 (as victim) and
# .023 (as neighbour) on Gavel, .003 and .001 on Lucid; slopes .05-.18; within a job .003-.005. For a job that training
# saw, they are about a tenth of that.
def default_prior() -> ResidualPrior:
    """The prior for model folders without one: effects of usual size, no signatures, no means."""
    unseen = np.diag([0.01, 0.05])
    return ResidualPrior(
        centre=0.3,
        as_victim=RolePrior(unseen=unseen, seen=unseen / 10, new_family=unseen),
        as_neighbour=RolePrior(unseen=unseen / 2, seen=unseen / 20, new_family=unseen / 2),
        pair_var=0.004,
        noise_var=0.001,
        signatures={},
        means={},
        victim_effect={},
        neighbour_effect={},
    )


def prior_arrays(prior: ResidualPrior) -> dict[str, NDArray[np.generic]]:
    """The prior as arrays of one .npz file without pickles; `read_prior` reads them back."""
    keys = sorted(prior.signatures)
    roles = {"own": prior.as_victim, "aggressor": prior.as_neighbour}
    return {
        "scalars": np.array([prior.centre, prior.pair_var, prior.noise_var]),
        **{name: np.stack([role.unseen, role.seen, role.new_family]) for name, role in roles.items()},
        "homes": np.array(keys, dtype=np.str_).reshape(len(keys), 3),
        "signatures": np.array([prior.signatures[key] for key in keys]).reshape(len(keys), prior.width - 2),
        "effects": np.array([(prior.victim_effect[key], prior.neighbour_effect[key]) for key in keys]).reshape(-1, 2),
        "domains": np.array(sorted(prior.means), dtype=np.str_).reshape(-1, 2),
        "means": np.array([prior.means[domain] for domain in sorted(prior.means)]),
        "families": np.array(sorted(prior.families), dtype=np.str_),
    }


def read_prior(folder: Path) -> ResidualPrior:
    """The prior of a model folder, or the default when it has none. Raises ModelError when it cannot be read."""
    path = folder / PRIOR_FILE
    if not path.is_file():
        return default_prior()
    try:
        with np.load(path, allow_pickle=False) as arrays:
            keys = [(str(a), str(b), parse_sharing_mode(str(c))) for a, b, c in arrays["homes"]]
            centre, pair_var, noise_var = map(float, arrays["scalars"])
            effects = arrays["effects"].tolist()
            return ResidualPrior(
                centre=centre,
                as_victim=_role_prior(arrays["own"]),
                as_neighbour=_role_prior(arrays["aggressor"]),
                pair_var=pair_var,
                noise_var=noise_var,
                signatures=dict(zip(keys, arrays["signatures"], strict=True)),
                means={
                    (str(a), parse_sharing_mode(str(b))): float(mean)
                    for (a, b), mean in zip(arrays["domains"], arrays["means"], strict=True)
                },
                victim_effect={key: row[0] for key, row in zip(keys, effects, strict=True)},
                neighbour_effect={key: row[1] for key, row in zip(keys, effects, strict=True)},
                families=frozenset(map(str, arrays["families"])) if "families" in arrays else frozenset(),
            )
    except (OSError, ValueError, KeyError, InvalidInputError) as error:
        raise ModelError(
            f"the prior of the online correction cannot be read ({error!r})",
            value=path,
            remedy="publish the model again: interfere train --publish DIR",
        ) from None


def _role_prior(covariances: Floats) -> RolePrior:
    """The covariances of one role; a file of an earlier version has none of a new family."""
    new_family = covariances[2] if len(covariances) > 2 else covariances[0]
    return RolePrior(unseen=covariances[0], seen=covariances[1], new_family=new_family)
