"""The two-tower model: fits the network of `towers`, both directions at once, and exports it twice."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from training.dataset import Dataset, Rows

if TYPE_CHECKING:  # torch takes seconds to import; only fitting and exporting need it
    from training.models.two_tower import Towers

CHECK_EVERY = 5  # epochs between looks at the validation groups


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedMlp:
    """A trained network."""

    name: str
    towers: "Towers"
    extra_columns: int = 0  # contention columns after the two jobs' columns; the towers do not read them

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """log slowdown, float64[p]."""
        import torch

        from training.models.two_tower import PairGraph

        with torch.inference_mode():
            answer = PairGraph(self.towers)(*(torch.from_numpy(a) for a in (rows.pairs, rows.victim, rows.neighbour)))
        return np.asarray(answer.numpy(), dtype=np.float64)

    def threshold_rows(self, rows: Rows) -> Rows:
        """None: the network is continuous."""
        return rows.take(np.zeros(0, dtype=np.int64))

    def to_onnx(self) -> bytes:
        """`pair.onnx`."""
        from training.models.torch_graph import export_pairs
        from training.models.two_tower import PairGraph

        columns = 2 * len(self.towers.centre) + self.extra_columns
        return export_pairs(PairGraph(self.towers), columns, ["log_slowdown"], domain=False)

    def to_matrix_onnx(self) -> bytes:
        """`matrix.onnx`."""
        from training.models.torch_graph import export_matrix
        from training.models.two_tower import MatrixGraph

        return export_matrix(MatrixGraph(self.towers), len(self.towers.centre), domain=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpModel:
    """Settings of the network and of its training (AdamW, full batches, Huber loss on log slowdown)."""

    members: int = 4
    hidden: int = 32
    head: int = 8
    identity: int = 8
    identity_dropout: float = 0.3  # to the unknown identity: teaches what to say of a job never seen
    epochs: int = 300
    learning_rate: float = 5e-3
    weight_decay: float = 0.02
    huber: float = 0.1  # log units; beyond it an error counts linearly
    validation_share: float = 0.15  # of the unordered pairs, another choice for each member
    name: ClassVar[str] = "mlp"

    def fit(self, dataset: Dataset, seed: int) -> FittedMlp:
        """Each member keeps its best state on its own validation pairs. One thread: the same sums in the same order."""
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return self._fit(dataset, torch.Generator().manual_seed(seed), np.random.default_rng([seed, 7]))
        finally:
            torch.set_num_threads(threads)

    def _fit(self, dataset: Dataset, generator: Any, rng: np.random.Generator) -> FittedMlp:
        import torch
        from torch.nn.functional import huber_loss

        from training.models.two_tower import Towers

        width = len(dataset.job_names)
        towers = Towers(
            width,
            len(dataset.workloads),
            members=self.members,
            hidden=self.hidden,
            head=self.head,
            identity=self.identity,
            generator=generator,
        )
        pairs = torch.from_numpy(dataset.rows.pairs)
        victims, neighbours = pairs[:, :width], pairs[:, width : 2 * width]
        towers.learn_scale(torch.cat([victims, neighbours]))
        target = torch.from_numpy(dataset.log_slowdown.astype(np.float32))
        weight = torch.from_numpy(dataset.weight.astype(np.float32))
        with torch.no_grad():
            towers.level.fill_(float(np.average(dataset.log_slowdown, weights=dataset.weight)))
        validation = torch.from_numpy(_validation(dataset.group, self.members, self.validation_share, rng))
        ids = torch.from_numpy(dataset.rows.victim), torch.from_numpy(dataset.rows.neighbour)
        learn = weight * ~validation
        look = weight * validation

        def losses(victim: Any, neighbour: Any) -> Any:
            """Huber per member and row, float32[K, p]."""
            u, _ = towers.encode(victims, victim)
            _, v = towers.encode(neighbours, neighbour)
            guess = towers.pairwise(u, v)
            return huber_loss(guess, target.expand_as(guess), reduction="none", delta=self.huber)

        optimiser = torch.optim.AdamW(towers.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, self.learning_rate, total_steps=self.epochs)
        best = torch.full((self.members,), torch.inf)
        kept = {name: value.detach().clone() for name, value in towers.named_parameters()}
        for epoch in range(self.epochs):
            dropped = [
                torch.where(torch.rand(validation.shape, generator=generator) < self.identity_dropout, 0, part)
                for part in ids
            ]
            optimiser.zero_grad()
            ((losses(*dropped) * learn).sum(1) / learn.sum(1)).sum().backward()
            optimiser.step()
            schedule.step()
            if epoch % CHECK_EVERY == CHECK_EVERY - 1:
                with torch.no_grad():
                    now = (losses(*ids) * look).sum(1) / look.sum(1)
                    better = now < best
                    best = torch.where(better, now, best)
                    for name, value in towers.named_parameters():
                        kept[name][better] = value[better]
        with torch.no_grad():
            for name, value in towers.named_parameters():
                value.copy_(kept[name])
            unseen = np.setdiff1d(
                np.arange(len(dataset.workloads) + 1), np.concatenate([dataset.rows.victim, dataset.rows.neighbour])
            )
            towers.identity[:, torch.from_numpy(unseen)] = towers.identity[:, :1]
        extra = dataset.rows.pairs.shape[1] - 2 * width
        return FittedMlp(name=self.name, towers=towers.eval(), extra_columns=extra)


def _validation(group: NDArray[np.int64], members: int, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """bool[K, p]: rows of at least one unordered pair that a member does not learn from."""
    groups = np.unique(group)
    size = min(len(groups) - 1, max(1, round(share * len(groups))))
    chosen = [rng.choice(groups, size=size, replace=False) for _ in range(members)]
    return np.stack([np.isin(group, part) for part in chosen])
