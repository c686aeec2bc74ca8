"""The posterior mean of the Gaussian process as torch modules, for export only; float64 inside, float32 outside."""

import torch
from torch import Tensor, nn

from interfere.predict.novelty import JobSpace
from interfere.training.models.gp.posterior import GpPosterior, gp_weight


class JobSpaceGraph(nn.Module):  # type: ignore[misc]  # torch is Any to the checker
    """`JobSpace` in torch: kernel rows and novelty of encoded jobs."""

    def __init__(self, space: JobSpace) -> None:
        super().__init__()
        for name in ("columns", "centre", "scale", "reach", "points", "inverse"):
            self.register_buffer(name, torch.from_numpy(getattr(space, name)))
        self.register_buffer("squared_norm", (self.points * self.points).sum(1))

    def kernel(self, jobs: Tensor) -> Tensor:
        """Return the kernel of jobs float32[n, F] with the training jobs, float64[n, m]."""
        scaled = (jobs[:, self.columns].double() - self.centre) * self.scale
        scaled = torch.where(scaled.isnan(), torch.zeros_like(scaled), scaled)
        coordinates = torch.minimum(torch.maximum(scaled, -self.reach), self.reach)
        squared_norm = (coordinates * coordinates).sum(1, keepdim=True)
        distance = squared_norm + self.squared_norm - 2.0 * (coordinates @ self.points.T)
        return torch.exp(-0.5 * distance.clamp(min=0.0))

    def familiarity(self, kernel: Tensor) -> Tensor:
        """Return 1 - novelty of each job, float64[n] in [0, 1], from its kernel row, float64[n, m]."""
        return ((kernel @ self.inverse) * kernel).sum(1).clamp(0.0, 1.0)


class GpGraph(nn.Module):  # type: ignore[misc]  # torch is Any to the checker
    """The arrays of the posterior and the outputs of both graphs; `weighted` marks a member of the ensemble."""

    def __init__(self, posterior: GpPosterior, *, weighted: bool = False) -> None:
        super().__init__()
        self.job_columns, self.weighted = posterior.job_columns, weighted
        self.has_factors = posterior.u.shape[2] > 0
        self.main = JobSpaceGraph(posterior.main_space)
        self.interaction = JobSpaceGraph(posterior.interaction_space)
        for name in ("level", "victim", "neighbour", "both", "own", "from_neighbour", "u", "w"):
            self.register_buffer(name, torch.from_numpy(getattr(posterior, name)))

    def outputs(self, familiarity: Tensor, *log_slowdowns: Tensor) -> tuple[Tensor, ...]:
        """Return float32 log slowdowns; if `weighted`, multiplied by the weight, and then the weight of the trees."""
        log_slowdowns = tuple(log_slowdown.float() for log_slowdown in log_slowdowns)
        if not self.weighted:
            return log_slowdowns
        weight = gp_weight(1.0 - familiarity).float()
        return *(weight * log_slowdown for log_slowdown in log_slowdowns), 1.0 - weight


class GpPairGraph(GpGraph):
    """`pair.onnx` of the Gaussian process, or of its term in the ensemble's weighted sum."""

    def forward(self, pairs: Tensor, victim: Tensor, neighbour: Tensor, domain: Tensor) -> tuple[Tensor, ...]:
        """Return log_slowdown float32[p]; if `weighted`, weight · log_slowdown and 1 - weight."""
        victims, neighbours = pairs[:, : self.job_columns], pairs[:, self.job_columns : 2 * self.job_columns]
        victim_kernel, neighbour_kernel = self.interaction.kernel(victims), self.interaction.kernel(neighbours)
        interactions = ((victim_kernel @ self.both) * neighbour_kernel).sum(1)
        main_effects = self.main.kernel(victims) @ self.victim + self.main.kernel(neighbours) @ self.neighbour
        identities = self.own[domain, victim] + self.from_neighbour[domain, neighbour]
        if self.has_factors:
            identities = identities + (self.u[domain, victim] * self.w[domain, neighbour]).sum(1)
        familiarity = self.interaction.familiarity(victim_kernel) * self.interaction.familiarity(neighbour_kernel)
        return self.outputs(familiarity, self.level[domain] + main_effects + interactions + identities)


class GpMatrixGraph(GpGraph):
    """`matrix.onnx` of the Gaussian process, or of its term in the ensemble's weighted sum."""

    def forward(
        self, victims: Tensor, victim_id: Tensor, neighbours: Tensor, neighbour_id: Tensor, domain: Tensor
    ) -> tuple[Tensor, ...]:
        """Return log_victim and log_neighbour, float32[v, n]; if `weighted`, both times the weight, and 1 - weight."""
        rows, columns = self.main.kernel(victims), self.main.kernel(neighbours)
        row_interactions, column_interactions = self.interaction.kernel(victims), self.interaction.kernel(neighbours)
        level = self.level[domain]
        own, effect = self.own[domain][0], self.from_neighbour[domain][0]
        victim_main = (rows @ self.victim + own[victim_id])[:, None] + (columns @ self.neighbour + effect[neighbour_id])
        neighbour_main = (rows @ self.neighbour + effect[victim_id])[:, None] + (
            columns @ self.victim + own[neighbour_id]
        )
        if self.has_factors:
            u, w = self.u[domain][0], self.w[domain][0]
            victim_main = victim_main + u[victim_id] @ w[neighbour_id].T
            neighbour_main = neighbour_main + w[victim_id] @ u[neighbour_id].T
        log_victim = victim_main + row_interactions @ self.both @ column_interactions.T + level
        log_neighbour = neighbour_main + row_interactions @ self.both.T @ column_interactions.T + level
        familiarity = self.interaction.familiarity(row_interactions)[:, None]
        familiarity = familiarity * self.interaction.familiarity(column_interactions)
        return self.outputs(familiarity, log_victim, log_neighbour)
