"""The two-tower network: each job is encoded once, and a pair costs one sum, one relu and one dot product.

One encoder serves both roles and has one projection for each: u (as victim) and v (as neighbour), and

    log ŝ[i beside j] = mean over members of  w · relu(u_i + v_j + b) + c

K members are one network with a leading axis and are trained together. The network standardises its inputs itself, and
reads an absent feature as value 0 with a mask. A column that is constant in training has no effect on predictions.
"""

import torch
from torch import Tensor, nn

CLIP = 4.0  # standard deviations: a feature far outside the training range counts as this far outside


class Towers(nn.Module):  # type: ignore[misc]  # torch is Any to the checker
    """K member networks: `columns` = F, `identities` = N (0 is the unknown one), layer widths `hidden` and `head`."""

    def __init__(
        self,
        columns: int,
        identities: int,
        *,
        members: int,
        hidden: int,
        head: int,
        identity: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()

        def matrix(rows: int, cols: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(members, rows, cols, generator=generator) * rows**-0.5)

        def vector(size: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(members, 1, size))

        self.centre = nn.Buffer(torch.zeros(columns))
        self.scale = nn.Buffer(torch.zeros(columns))
        self.mask_scale = nn.Buffer(torch.zeros(columns))
        self.identity = nn.Parameter(torch.randn(members, identities + 1, identity, generator=generator) * 0.1)
        self.first, self.first_bias = matrix(2 * columns + identity, hidden), vector(hidden)
        self.second, self.second_bias = matrix(hidden, hidden), vector(hidden)
        self.as_victim, self.as_neighbour, self.bias = matrix(hidden, head), matrix(hidden, head), vector(head)
        self.out, self.level = matrix(head, 1), vector(1)

    def standardise(self, jobs: Tensor) -> None:
        """Set centre and scale of the columns from float32[p, F]; the scale of a constant column is 0."""
        missing = jobs.isnan()
        count = (~missing).sum(0).clamp(min=1)
        values = jobs.nan_to_num(0.0).double()
        self.centre.copy_(values.sum(0) / count)
        deviation = torch.where(missing, 0.0, values - self.centre.double())
        spread = (deviation.square().sum(0) / count).sqrt()
        self.scale.copy_(torch.where(spread > 1e-6, 1.0 / spread, 0.0))
        missing_share = missing.double().mean(0)
        self.mask_scale.copy_((missing_share > 0) & (missing_share < 1))

    def encode(self, jobs: Tensor, identity: Tensor) -> tuple[Tensor, Tensor]:
        """Return u and v, float32[K, n, head] each, for jobs float32[n, F] and identities int64[K, n] or int64[n]."""
        missing = jobs.isnan()
        values = torch.where(missing, torch.zeros_like(jobs), (jobs - self.centre) * self.scale).clamp(-CLIP, CLIP)
        facts = torch.cat([values, missing.to(jobs.dtype) * self.mask_scale], dim=-1)
        members = self.identity.shape[0]
        if identity.dim() == 1:
            embedding = self.identity[:, identity]
        else:
            embedding = self.identity[torch.arange(members)[:, None], identity]
        inputs = torch.cat([facts.expand(members, -1, -1), embedding], dim=-1)
        encoded = torch.relu(inputs @ self.first + self.first_bias)
        encoded = torch.relu(encoded @ self.second + self.second_bias)
        return encoded @ self.as_victim + self.bias, encoded @ self.as_neighbour

    def pairwise(self, u: Tensor, v: Tensor) -> Tensor:
        """Return each member's log slowdown, float32[K, p], from u and v, float32[K, p, head] each."""
        return (torch.relu(u + v) @ self.out + self.level).squeeze(-1)


class PairGraph(nn.Module):  # type: ignore[misc]  # torch is Any to the checker
    """The network as `pair.onnx`. It reads the first 2F of the f pair columns: the columns of the two jobs."""

    def __init__(self, towers: Towers) -> None:
        super().__init__()
        self.towers = towers

    def forward(self, pairs: Tensor, victim: Tensor, neighbour: Tensor) -> Tensor:
        """Return log_slowdown float32[p]."""
        width = self.towers.centre.shape[0]
        u, _ = self.towers.encode(pairs[:, :width], victim)
        _, v = self.towers.encode(pairs[:, width : 2 * width], neighbour)
        return self.towers.pairwise(u, v).mean(0)


class MatrixGraph(nn.Module):  # type: ignore[misc]  # torch is Any to the checker
    """`matrix.onnx` of the network. The heads of all members are concatenated, so that they share one broadcast."""

    def __init__(self, towers: Towers) -> None:
        super().__init__()
        self.towers = towers

    def forward(
        self, victims: Tensor, victim_id: Tensor, neighbours: Tensor, neighbour_id: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return log_victim and log_neighbour, float32[v, n] each."""
        u_rows, v_rows = (_concatenated_heads(side) for side in self.towers.encode(victims, victim_id))
        u_columns, v_columns = (_concatenated_heads(side) for side in self.towers.encode(neighbours, neighbour_id))
        out = self.towers.out.reshape(-1) / self.towers.out.shape[0]
        level = self.towers.level.mean()
        log_victim = torch.relu(u_rows[:, None, :] + v_columns[None, :, :]) @ out + level
        log_neighbour = torch.relu(v_rows[:, None, :] + u_columns[None, :, :]) @ out + level
        return log_victim, log_neighbour


def _concatenated_heads(heads: Tensor) -> Tensor:
    """Return float32[n, K · head]: the heads of all K members side by side, from float32[K, n, head]."""
    return heads.permute(1, 0, 2).flatten(1)
