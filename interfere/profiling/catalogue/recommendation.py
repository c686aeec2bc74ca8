"""Recommendation models: an autoencoder over items (Kuchaiev and Ginsburg 2017) and NeuMF (He et al. 2017).

Each has the sizes that the measured programs set.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from interfere.profiling.static import Traceable, training

ITEMS, USERS = 20_108, 116_677  # ML-20M after the usual filtering, and its training users (Liang et al. 2018)
MOVIES, VIEWERS = 3_706, 6_040  # ML-1M


def autoencoder(batch: int, amp: bool = False, hidden: int = 200) -> Traceable:
    """Return the training of an autoencoder over items; a step is a pass over all users, as Gavel's script reports
    it."""
    model = nn.Sequential(nn.Linear(ITEMS, hidden), nn.Tanh(), nn.Linear(hidden, ITEMS))
    ratings = torch.rand(batch, ITEMS)

    def loss() -> Tensor:
        noisy = functional.dropout(ratings, 0.5)
        return functional.binary_cross_entropy_with_logits(model(noisy), ratings, reduction="sum")

    return training(model, loss, torch.optim.Adam(model.parameters()), amp=amp, repeats=math.ceil(USERS / batch))


class NeuMf(nn.Module):
    """NeuMF: embeddings of width w multiplied, beside embeddings of width 4 w through dense layers that halve."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.users = nn.ModuleList(nn.Embedding(VIEWERS, w) for w in (width, 4 * width))
        self.items = nn.ModuleList(nn.Embedding(MOVIES, w) for w in (width, 4 * width))
        layers = ((nn.Linear(w * width, w * width // 2), nn.ReLU()) for w in (8, 4, 2))
        self.deep = nn.Sequential(*(part for layer in layers for part in layer))
        self.score = nn.Linear(2 * width, 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        product = self.users[0](user) * self.items[0](item)
        return self.score(
            torch.cat([product, self.deep(torch.cat([self.users[1](user), self.items[1](item)], -1))], -1)
        )


def neumf(batch: int, amp: bool = False) -> Traceable:
    """Return a training step of NeuMF, which predicts clicks; Lucid's script trains by SGD with momentum."""
    model = NeuMf()
    user, item, click = torch.randint(VIEWERS, (batch,)), torch.randint(MOVIES, (batch,)), torch.rand(batch, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)

    def loss() -> Tensor:
        return functional.binary_cross_entropy_with_logits(model(user, item), click)

    return training(model, loss, optimizer, amp=amp)
