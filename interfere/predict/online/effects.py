"""What jobs and pairs are off by, learned by one Kalman update an observation.

An observation e = phi · own + psi · aggressor + pair + noise updates the three blocks as if they were independent
before it (assumed density filtering: Opper 1998, "A Bayesian approach to on-line learning"; the per-player update of
TrueSkill), so an update costs O(d²) and nothing grows but the number of jobs and pairs::

    S = φᵀPφ + ψᵀQψ + pair variance + noise,   r = e - expected, clipped to ± CLIP · √S
    own += Pφ r / S,   P -= Pφ φᵀP / S,   and so for the others

Forgetting: every update gives back `FORGET` of what the prior had, so evidence older than some hundred windows fades.
Laws: the pair observed moves toward the observation and never past it; variances never exceed the prior's.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.predict.online.prior import Floats, Home, ResidualPrior, RolePrior
from interfere.predict.online.revertible import UndoDict

Ints = NDArray[np.int64]
PairKey = tuple[Home, str]  # victim, workload of its neighbour
PairEffect = tuple[float, float]  # mean, variance; both at scale 1

# Two standard deviations cost Gavel's neighbours .002 of speed after one observation, nine gained nothing on Lucid.
CLIP = 3.0
FORGET = 1 / 400  # of the prior's variance, per update: a job seen daily at ten windows forgets in about a month


@dataclass(frozen=True, slots=True)
class Block:
    """Effects of one job in one role: mean float64[d], covariance float64[d, d], of which prior."""

    mean: Floats
    covariance: Floats
    prior: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One measured pair: who, the log slowdown the model gave and the one that was measured. `direct`: the model's
    answer was itself a measurement of this pair, so its error says nothing about either job."""

    victim: Home
    neighbour: Home
    log_predicted: float
    log_measured: float
    direct: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Surprise:
    """How far an observation lay from what was expected."""

    error: float  # log measured - log corrected prediction
    sd: float  # what it was expected to be

    @property
    def z(self) -> float:
        """In standard deviations."""
        return self.error / self.sd


class Effects:
    """Blocks of all jobs in both roles, and one number a pair."""

    def __init__(self, prior: ResidualPrior) -> None:
        self.prior = prior
        self.own: UndoDict[Home, Block] = UndoDict()
        self.aggressor: UndoDict[Home, Block] = UndoDict()
        self.pairs: UndoDict[PairKey, PairEffect] = UndoDict()
        self.cold: set[Home] = set()  # jobs without facts: what they are off by includes what facts would tell
        self.cold_var = {role: prior.cold_var(role) for role in ("own", "aggressor")}
        self._cold_prior: dict[str, Floats] = {
            role: getattr(prior, role).new + np.diag([variance, *[0.0] * (prior.width - 1)])
            for role, variance in self.cold_var.items()
        }
        self.company: dict[Home, set[str]] = {}  # victim -> neighbours that `pairs` may know

    def surprise(self, window: Window) -> Surprise:
        """What `learn` would learn from."""
        mean, variance, scale = self._expected(window)
        return Surprise(
            error=window.log_measured - window.log_predicted - mean,
            sd=math.sqrt(variance + scale * self.prior.noise_var),
        )

    def learn(self, window: Window) -> None:
        """One update of the victim, the neighbour and the pair."""
        surprise = self.surprise(window)
        total = surprise.sd**2
        gain = min(max(surprise.error, -CLIP * surprise.sd), CLIP * surprise.sd) / total
        if not window.direct:
            phi, psi = self._features(window)
            for blocks, home, role, features in (
                (self.own, window.victim, self.prior.own, phi),
                (self.aggressor, window.neighbour, self.prior.aggressor, psi),
            ):
                blocks[home] = _updated(self._block(blocks, home, role), features, gain, total)
        scale = self.prior.scale_of(window.log_predicted)
        mean, variance = self._pair(window.victim, window.neighbour[0])
        root = math.sqrt(scale)
        left = variance - scale * variance**2 / total
        self.know_pair(window.victim, window.neighbour[0])
        self.pairs[window.victim, window.neighbour[0]] = (
            mean + root * variance * gain,
            left + FORGET * (self.prior.pair_var - left),
        )

    def know_pair(self, victim: Home, neighbour: str) -> None:
        """Let predictions look for what is special about a pair."""
        self.company.setdefault(victim, set()).add(neighbour)

    def reset(self, home: Home) -> None:
        """Doubt everything about a job as on the first day; the means stay until something better is seen."""
        for blocks in (self.own, self.aggressor):
            if (block := blocks.get(home)) is not None:
                blocks[home] = replace(block, covariance=block.prior)
        for name in self.company.get(home, ()):
            if (home, name) in self.pairs:
                self.pairs[home, name] = (self.pairs[home, name][0], self.prior.pair_var)

    def books(self) -> tuple[UndoDict[Home, Block], UndoDict[Home, Block], UndoDict[PairKey, PairEffect]]:
        """Everything that learning changes."""
        return self.own, self.aggressor, self.pairs

    def _pair(self, victim: Home, neighbour: str) -> tuple[float, float]:
        """Mean and variance of what is special about one pair."""
        return self.pairs.get((victim, neighbour), (0.0, self.prior.pair_var))

    def _expected(self, window: Window) -> tuple[float, float, float]:
        """(mean, variance without noise, scale) of e. Makes no block: asking leaves no trace."""
        scale = self.prior.scale_of(window.log_predicted)
        mean, variance = self._pair(window.victim, window.neighbour[0])
        mean, variance = mean * math.sqrt(scale), variance * scale
        if window.direct:
            return mean, variance, scale
        phi, psi = self._features(window)
        for blocks, home, role, features in (
            (self.own, window.victim, self.prior.own, phi),
            (self.aggressor, window.neighbour, self.prior.aggressor, psi),
        ):
            block = blocks.get(home)
            covariance = block.covariance if block else self.prior_of(home, role)
            mean += float(features @ block.mean) if block else 0.0
            variance += float(features @ covariance @ features)
        return mean, variance, scale

    def _features(self, window: Window) -> tuple[Floats, Floats]:
        head = [1.0, window.log_predicted - self.prior.centre]
        return (
            np.array([*head, *self.prior.signature(window.neighbour)]),
            np.array([*head, *self.prior.signature(window.victim)]),
        )

    def _block(self, blocks: Mapping[Home, Block], home: Home, role: RolePrior) -> Block:
        block = blocks.get(home)
        if block is None:
            prior = self.prior_of(home, role)
            block = Block(mean=np.zeros(self.prior.width), covariance=prior, prior=prior)
        return block

    def prior_of(self, home: Home, role: RolePrior) -> Floats:
        if home in self.cold:
            return self._cold_prior["own" if role is self.prior.own else "aggressor"]
        return role.known if home in self.prior.signatures else role.new

    # --- for many pairs at once -------------------------------------------------------------------------------------

    def at(
        self, homes: list[Home], victim: Ints, neighbour: Ints, log_predicted: Floats, direct: NDArray[np.bool_]
    ) -> tuple[Floats, Floats]:
        """(expected e, `tightening`), float64[p] each, of pairs whose two jobs are places in `homes`."""
        slope, scale = log_predicted - self.prior.centre, self.prior.scale(log_predicted)
        z, one = self._signatures(homes), np.ones(len(slope))
        mean, after, before = np.zeros(len(slope)), np.zeros(len(slope)), np.zeros(len(slope))
        for blocks, role, who, beside in (
            (self.own, self.prior.own, victim, neighbour),
            (self.aggressor, self.prior.aggressor, neighbour, victim),
        ):
            features = np.column_stack([one, slope, z[beside]])
            priors = np.array([self.prior_of(home, role) for home in homes])
            found = [blocks.get(home) for home in homes]
            now = np.array([block.covariance if block else prior for block, prior in zip(found, priors, strict=True)])
            mean += (features * self._means(blocks, homes)[who]).sum(axis=1)
            after += np.einsum("pd,pde,pe->p", features, now[who], features)
            before += np.einsum("pd,pde,pe->p", features, priors[who], features)
        ends = zip(victim.tolist(), neighbour.tolist(), strict=True)
        special = np.array([self._pair(homes[i], homes[j][0]) for i, j in ends]).reshape(-1, 2)
        noise = scale * self.prior.noise_var
        after = np.where(direct, 0.0, after) + scale * special[:, 1] + noise
        before = np.where(direct, 0.0, before) + scale * self.prior.pair_var + noise
        return (
            np.where(direct, 0.0, mean) + np.sqrt(scale) * special[:, 0],
            np.sqrt(np.minimum(after / before, 1.0)),
        )

    def shifts(self, victims: list[Home], neighbours: list[Home], log_predicted: Floats) -> Floats:
        """float64[v, n]: what jobs are off by, victims beside neighbours, without what is special to pairs."""
        own, aggressor = self._means(self.own, victims), self._means(self.aggressor, neighbours)
        slope = log_predicted - self.prior.centre
        shift = own[:, :1] + own[:, 1:2] * slope + aggressor[:, 0] + aggressor[:, 1] * slope
        if self.prior.width > 2:
            shift += own[:, 2:] @ self._signatures(neighbours).T + self._signatures(victims) @ aggressor[:, 2:].T
        return np.asarray(shift)

    def tightening(self, victims: list[Home], neighbours: list[Home], log_predicted: Floats) -> Floats:
        """float64[v, n]: standard deviation of a window after what was observed ÷ before any of it; at most 1."""
        slope = log_predicted - self.prior.centre
        before = self.prior.scale(log_predicted) * (self.prior.pair_var + self.prior.noise_var)
        after = before.copy()
        rows = self._signatures(neighbours)
        for i, home in enumerate(victims):
            phi = np.column_stack([np.ones(len(neighbours)), slope[i], rows])
            old, new = self._variances(self.own, home, self.prior.own, phi)
            before[i] += old
            after[i] += new
        rows = self._signatures(victims)
        for j, home in enumerate(neighbours):
            psi = np.column_stack([np.ones(len(victims)), slope[:, j], rows])
            old, new = self._variances(self.aggressor, home, self.prior.aggressor, psi)
            before[:, j] += old
            after[:, j] += new
        return np.asarray(np.sqrt(np.minimum(after / before, 1.0)))

    def pair_shift(self, victim: Home, neighbour: str, log_predicted: float) -> float:
        """What is special about one pair."""
        mean, _ = self._pair(victim, neighbour)
        return mean * math.sqrt(self.prior.scale_of(log_predicted))

    def pair_tightening(self, victim: Home, neighbour: Home, log_predicted: float, *, direct: bool) -> float:
        """As `tightening` of one pair, what is known of the very pair included."""
        window = _asked(victim, neighbour, log_predicted, direct=direct)
        _, after, scale = self._expected(window)
        before = scale * self.prior.pair_var
        if not direct:
            phi, psi = self._features(window)
            before += float(phi @ self.prior_of(victim, self.prior.own) @ phi)
            before += float(psi @ self.prior_of(neighbour, self.prior.aggressor) @ psi)
        noise = scale * self.prior.noise_var
        return math.sqrt(min((after + noise) / (before + noise), 1.0))

    def _variances(
        self, blocks: Mapping[Home, Block], home: Home, role: RolePrior, features: Floats
    ) -> tuple[Floats, Floats]:
        """float64[k] each: variance of features · effect under the prior, and now."""
        prior = self.prior_of(home, role)
        block = blocks.get(home)
        old = np.einsum("kd,de,ke->k", features, prior, features)
        return old, np.einsum("kd,de,ke->k", features, block.covariance, features) if block else old

    def _signatures(self, homes: list[Home]) -> Floats:
        """float64[k, q]."""
        return np.array([self.prior.signature(home) for home in homes]).reshape(len(homes), self.prior.width - 2)

    def _means(self, blocks: Mapping[Home, Block], homes: list[Home]) -> Floats:
        zero = np.zeros(self.prior.width)
        return np.array([block.mean if (block := blocks.get(home)) else zero for home in homes]).reshape(
            len(homes), self.prior.width
        )


def _asked(victim: Home, neighbour: Home, log_predicted: float, *, direct: bool) -> Window:
    """A window to ask about, not to learn from."""
    return Window(victim=victim, neighbour=neighbour, log_predicted=log_predicted, log_measured=0.0, direct=direct)


def _updated(block: Block, features: Floats, gain: float, total: float) -> Block:
    """Conditioned on the observation, then forgotten a little."""
    reach = block.covariance @ features
    left = block.covariance - np.outer(reach, reach) / total
    return Block(mean=block.mean + reach * gain, covariance=left + FORGET * (block.prior - left), prior=block.prior)
