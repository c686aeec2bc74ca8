"""The two-tower model: trains the network of `two_tower` on ordered pairs and exports it as pair and matrix graphs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from interfere.training.dataset import Dataset, PairRows

if TYPE_CHECKING:  # torch takes seconds to import; only fitting and exporting need it
    from interfere.training.models.two_tower import Towers

CHECK_EVERY = 5  # epochs between validations


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedMlp:
    """A trained network."""

    name: str
    towers: "Towers"
    contention_columns: int = 0  # number of columns after those of the two jobs; the towers do not read them

    def predict(self, rows: PairRows) -> NDArray[np.float64]:
        """Return predicted log slowdowns, float64[p]."""
        import torch

        from interfere.training.models.two_tower import PairGraph

        with torch.inference_mode():
            inputs = (torch.from_numpy(array) for array in (rows.pairs, rows.victim, rows.neighbour))
            predicted = PairGraph(self.towers)(*inputs)
        return np.asarray(predicted.numpy(), dtype=np.float64)

    def to_onnx(self) -> bytes:
        """Return the serialised `pair.onnx` graph."""
        from interfere.training.models.onnx_graph import pair_module_to_onnx
        from interfere.training.models.two_tower import PairGraph

        columns = 2 * len(self.towers.centre) + self.contention_columns
        return pair_module_to_onnx(PairGraph(self.towers), columns, ["log_slowdown"], domain=False)

    def to_matrix_onnx(self) -> bytes:
        """Return the serialised `matrix.onnx` graph."""
        from interfere.training.models.onnx_graph import matrix_module_to_onnx
        from interfere.training.models.two_tower import MatrixGraph

        return matrix_module_to_onnx(MatrixGraph(self.towers), len(self.towers.centre), domain=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpModel:
    """Settings of the network and of its training (AdamW, full batches, Huber loss on log slowdown)."""

    members: int = 4
    hidden: int = 32
    head: int = 8
    identity: int = 8
    identity_dropout: float = 0.3  # share of identities replaced by the unknown one: trains it for unseen jobs
    epochs: int = 300
    learning_rate: float = 5e-3
    weight_decay: float = 0.02
    huber: float = 0.1  # log slowdown; beyond it the loss is linear in the error
    validation_share: float = 0.15  # of the unordered pairs, drawn for each member
    name: ClassVar[str] = "mlp"

    def fit(self, dataset: Dataset, seed: int) -> FittedMlp:
        """Train on one thread, so that all sums keep their order; each member keeps its best validated state."""
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

        # 1. Initialise the network and its standardisation.
        width = len(dataset.job_columns)
        towers = self._towers(dataset, generator)
        pairs = torch.from_numpy(dataset.rows.pairs)
        victims, neighbours = pairs[:, :width], pairs[:, width : 2 * width]
        towers.standardise(torch.cat([victims, neighbours]))

        # 2. Split each member's rows into training and validation rows.
        target = torch.from_numpy(dataset.log_slowdown.astype(np.float32))
        weight = torch.from_numpy(dataset.weight.astype(np.float32))
        validation = torch.from_numpy(_validation_rows(dataset.group, self.members, self.validation_share, rng))
        training_weight, validation_weight = weight * ~validation, weight * validation
        identities = torch.from_numpy(dataset.rows.victim), torch.from_numpy(dataset.rows.neighbour)

        def losses(victim: Any, neighbour: Any) -> Any:
            """Return the Huber loss of each member and row, float32[K, p]."""
            u, _ = towers.encode(victims, victim)
            _, v = towers.encode(neighbours, neighbour)
            predicted = towers.pairwise(u, v)
            return huber_loss(predicted, target.expand_as(predicted), reduction="none", delta=self.huber)

        # 3. Train on all rows at once, and keep the best validated state of each member.
        optimiser = torch.optim.AdamW(towers.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, self.learning_rate, total_steps=self.epochs)
        best_loss = torch.full((self.members,), torch.inf)
        best_state = {name: value.detach().clone() for name, value in towers.named_parameters()}
        for epoch in range(self.epochs):
            dropped = [
                torch.where(torch.rand(validation.shape, generator=generator) < self.identity_dropout, 0, identity)
                for identity in identities
            ]
            optimiser.zero_grad()
            ((losses(*dropped) * training_weight).sum(1) / training_weight.sum(1)).sum().backward()
            optimiser.step()
            schedule.step()
            if epoch % CHECK_EVERY == CHECK_EVERY - 1:
                with torch.no_grad():
                    loss = (losses(*identities) * validation_weight).sum(1) / validation_weight.sum(1)
                    better = loss < best_loss
                    best_loss = torch.where(better, loss, best_loss)
                    for name, value in towers.named_parameters():
                        best_state[name][better] = value[better]

        # 4. Restore the best states, and give identities without a training row that of the unknown one.
        with torch.no_grad():
            for name, value in towers.named_parameters():
                value.copy_(best_state[name])
            untrained = np.setdiff1d(
                np.arange(len(dataset.workloads) + 1), np.concatenate([dataset.rows.victim, dataset.rows.neighbour])
            )
            towers.identity[:, torch.from_numpy(untrained)] = towers.identity[:, :1]
        contention_columns = dataset.rows.pairs.shape[1] - 2 * width
        return FittedMlp(name=self.name, towers=towers.eval(), contention_columns=contention_columns)

    def _towers(self, dataset: Dataset, generator: Any) -> "Towers":
        """Return the untrained network, whose output bias is the mean log slowdown."""
        import torch

        from interfere.training.models.two_tower import Towers

        towers = Towers(
            len(dataset.job_columns),
            len(dataset.workloads),
            members=self.members,
            hidden=self.hidden,
            head=self.head,
            identity=self.identity,
            generator=generator,
        )
        with torch.no_grad():
            towers.level.fill_(float(np.average(dataset.log_slowdown, weights=dataset.weight)))
        return towers


def _validation_rows(
    group: NDArray[np.int64], members: int, share: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return bool[K, p]: each member's validation rows, a random share of the unordered pairs, at least one pair."""
    groups = np.unique(group)
    size = min(len(groups) - 1, max(1, round(share * len(groups))))
    drawn = [rng.choice(groups, size=size, replace=False) for _ in range(members)]
    return np.stack([np.isin(group, member_groups) for member_groups in drawn])
