"""The Gaussian process as torch modules, for export only: float64 inside, float32 at the rim."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from interfere.predict.novelty import JobSpace
from training.models.ensemble_weight import gp_share

if TYPE_CHECKING:
    from training.models.gp import FittedGp


class SpaceGraph(nn.Module):  # type: ignore[misc]  # torch is Any to the checker
    """`JobSpace`: kernel row and novelty of encoded jobs."""

    def __init__(self, space: JobSpace) -> None:
        super().__init__()
        for name in ("columns", "centre", "scale", "reach", "points", "inverse"):
            self.register_buffer(name, torch.from_numpy(getattr(space, name)))
        self.register_buffer("square", (self.points * self.points).sum(1))

    def kernel(self, jobs: Tensor) -> Tensor:
        """float64[n, m] of float32[n, F]."""
        apart = (jobs[:, self.columns].double() - self.centre) * self.scale
        apart = torch.where(apart.isnan(), torch.zeros_like(apart), apart)
        at = torch.minimum(torch.maximum(apart, -self.reach), self.reach)
        distance = (at * at).sum(1, keepdim=True) + self.square - 2.0 * (at @ self.points.T)
        return torch.exp(-0.5 * distance.clamp(min=0.0))

    def novelty(self, jobs: Tensor) -> Tensor:
        """float64[n] of float32[n, F]."""
        near = self.kernel(jobs)
        return (1.0 - ((near @ self.inverse) * near).sum(1)).clamp(0.0, 1.0)


class GpGraph(nn.Module):  # type: ignore[misc]  # torch is Any to the checker
    """What both graphs hold."""

    def __init__(self, fitted: "FittedGp") -> None:
        super().__init__()
        self.columns = fitted.columns
        self.alone, self.together = SpaceGraph(fitted.alone), SpaceGraph(fitted.together)
        for name in ("level", "victim", "neighbour", "both", "own", "from_neighbour"):
            self.register_buffer(name, torch.from_numpy(getattr(fitted, name)))


class GpPairGraph(GpGraph):
    """What `pair.onnx` computes."""

    def forward(self, pairs: Tensor, victim: Tensor, neighbour: Tensor, domain: Tensor) -> Tensor:
        """log_slowdown float32[p]."""
        victims, neighbours = pairs[:, : self.columns], pairs[:, self.columns : 2 * self.columns]
        crossed = ((self.together.kernel(victims) @ self.both) * self.together.kernel(neighbours)).sum(1)
        features = self.alone.kernel(victims) @ self.victim + self.alone.kernel(neighbours) @ self.neighbour
        named = self.own[domain, victim] + self.from_neighbour[domain, neighbour]
        return (self.level[domain] + features + crossed + named).float()


class GpShareGraph(GpPairGraph):
    """The Gaussian process's part of an ensemble's answer, and what is left to the other half."""

    def forward(self, pairs: Tensor, victim: Tensor, neighbour: Tensor, domain: Tensor) -> tuple[Tensor, Tensor]:
        """share · log_slowdown and 1 - share, float32[p] each."""
        victims, neighbours = pairs[:, : self.columns], pairs[:, self.columns : 2 * self.columns]
        known = (1.0 - self.together.novelty(victims)) * (1.0 - self.together.novelty(neighbours))
        share = gp_share(1.0 - known).float()
        return share * super().forward(pairs, victim, neighbour, domain), 1.0 - share


class GpMatrixGraph(GpGraph):
    """What `matrix.onnx` computes."""

    def forward(
        self, victims: Tensor, victim_id: Tensor, neighbours: Tensor, neighbour_id: Tensor, domain: Tensor
    ) -> tuple[Tensor, Tensor]:
        """log_victim, log_neighbour: float32[v, n] each."""
        rows, columns = self.alone.kernel(victims), self.alone.kernel(neighbours)
        rows_together, columns_together = self.together.kernel(victims), self.together.kernel(neighbours)
        level = self.level[domain]
        own, effect = self.own[domain][0], self.from_neighbour[domain][0]
        ahead = (rows @ self.victim + own[victim_id])[:, None] + (columns @ self.neighbour + effect[neighbour_id])
        back = (rows @ self.neighbour + effect[victim_id])[:, None] + (columns @ self.victim + own[neighbour_id])
        ahead = ahead + rows_together @ self.both @ columns_together.T + level
        back = back + rows_together @ self.both.T @ columns_together.T + level
        return ahead.float(), back.float()
