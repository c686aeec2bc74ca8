"""Recommendation and image generation.

Autoencoder over items (Kuchaiev and Ginsburg 2017), NeuMF (He et al. 2017), DCGAN (Radford et al. 2016), CycleGAN (Zhu
et al. 2017), each with the sizes that the measured programs set.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from interfere.profiling.static.traceable import Traceable, training

ITEMS, USERS = 20_108, 116_677  # ML-20M after the usual filtering, and its training users (Liang et al. 2018)
MOVIES, VIEWERS = 3_706, 6_040  # ML-1M


def autoencoder(batch: int, amp: bool = False, hidden: int = 200) -> Traceable:
    """One pass over all users, which is what Gavel's script reports as a step; item vectors taken as dense."""
    model = nn.Sequential(nn.Linear(ITEMS, hidden), nn.Tanh(), nn.Linear(hidden, ITEMS))
    seen = torch.rand(batch, ITEMS)

    def loss() -> Tensor:
        noisy = functional.dropout(seen, 0.5)
        return functional.binary_cross_entropy_with_logits(model(noisy), seen, reduction="sum")

    return training(model, loss, torch.optim.Adam(model.parameters()), amp=amp, repeats=math.ceil(USERS / batch))


class NeuMf(nn.Module):
    """Factors multiplied, and four times wider factors through an MLP that halves three times."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.users = nn.ModuleList(nn.Embedding(VIEWERS, w) for w in (width, 4 * width))
        self.items = nn.ModuleList(nn.Embedding(MOVIES, w) for w in (width, 4 * width))
        layers = ((nn.Linear(w * width, w * width // 2), nn.ReLU()) for w in (8, 4, 2))
        self.deep = nn.Sequential(*(part for layer in layers for part in layer))
        self.score = nn.Linear(2 * width, 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        wide = self.users[0](user) * self.items[0](item)
        return self.score(torch.cat([wide, self.deep(torch.cat([self.users[1](user), self.items[1](item)], -1))], -1))


def neumf(batch: int, amp: bool = False) -> Traceable:
    """Clicks or not; Lucid's script trains it by SGD with momentum."""
    model = NeuMf()
    user, item, click = torch.randint(VIEWERS, (batch,)), torch.randint(MOVIES, (batch,)), torch.rand(batch, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)

    def loss() -> Tensor:
        return functional.binary_cross_entropy_with_logits(model(user, item), click)

    return training(model, loss, optimizer, amp=amp)


def dcgan(batch: int, amp: bool = False, width: int = 64) -> Traceable:
    """Both networks in turn, on 64 × 64 images."""
    sizes = (8, 4, 2, 1)
    up: list[nn.Module] = [nn.ConvTranspose2d(100, width * 8, 4, bias=False), nn.BatchNorm2d(width * 8), nn.ReLU()]
    down: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
    for big, small in pairwise(sizes):
        up += [
            nn.ConvTranspose2d(width * big, width * small, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width * small),
            nn.ReLU(),
        ]
    for small, big in pairwise(sizes[::-1]):
        down += [
            nn.Conv2d(width * small, width * big, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width * big),
            nn.LeakyReLU(0.2),
        ]
    generator = nn.Sequential(*up, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())
    critic = nn.Sequential(*down, nn.Conv2d(width * 8, 1, 4, bias=False), nn.Flatten())
    real, noise = torch.randn(batch, 3, 64, 64), torch.randn(batch, 100, 1, 1)
    return adversarial(generator, critic, noise, real, amp=amp)


def cyclegan(batch: int = 1, amp: bool = False, pixels: int = 256) -> Traceable:
    """Two generators of nine residual blocks, two patch critics, cycle and identity losses."""
    first, second, critic_first, critic_second = _translator(), _translator(), _patches(), _patches()
    here, there = torch.randn(batch, 3, pixels, pixels), torch.randn(batch, 3, pixels, pixels)
    makers = torch.optim.Adam([*first.parameters(), *second.parameters()])
    critics = torch.optim.Adam([*critic_first.parameters(), *critic_second.parameters()])

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            fake_there, fake_here = first(here), second(there)
            cycle = functional.l1_loss(second(fake_there), here) + functional.l1_loss(first(fake_here), there)
            same = functional.l1_loss(first(there), there) + functional.l1_loss(second(here), here)
            fooled = critic_second(fake_there).square().mean() + critic_first(fake_here).square().mean()
            loss = 10 * cycle + 5 * same + fooled
        makers.zero_grad()
        loss.backward()
        makers.step()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            told = sum(
                critic(image).square().mean()
                for critic, image in (
                    (critic_first, here),
                    (critic_first, fake_here.detach()),
                    (critic_second, there),
                    (critic_second, fake_there.detach()),
                )
            )
        critics.zero_grad()
        told.backward()
        critics.step()

    return Traceable(modules=(first, second, critic_first, critic_second), step=step, optimizers=(makers, critics))


def adversarial(maker: nn.Module, critic: nn.Module, noise: Tensor, real: Tensor, *, amp: bool) -> Traceable:
    """Critic on real and made images, then the maker against the critic."""
    makers = torch.optim.Adam(maker.parameters())
    critics = torch.optim.Adam(critic.parameters())

    def judged(images: Tensor, truth: float) -> Tensor:
        score = critic(images)
        return functional.binary_cross_entropy_with_logits(score, torch.full_like(score, truth))

    def step() -> None:
        critics.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            made = maker(noise)
            told = judged(real, 1.0) + judged(made.detach(), 0.0)
        told.backward()
        critics.step()
        makers.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            fooled = judged(made, 1.0)
        fooled.backward()
        makers.step()

    return Traceable(modules=(maker, critic), step=step, optimizers=(makers, critics))


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        half = (nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width))
        again = (nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width))
        self.body = nn.Sequential(*half, nn.ReLU(), *again)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def _translator(width: int = 64) -> nn.Module:
    layers: list[nn.Module] = [nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7), nn.InstanceNorm2d(width), nn.ReLU()]
    for k in (1, 2):
        layers += [nn.Conv2d(width * k, width * k * 2, 3, 2, 1), nn.InstanceNorm2d(width * k * 2), nn.ReLU()]
    layers += [_Block(width * 4) for _ in range(9)]
    for k in (4, 2):
        bigger = nn.Upsample(scale_factor=2)
        layers += [bigger, nn.Conv2d(width * k, width * k // 2, 3, 1, 1), nn.InstanceNorm2d(width * k // 2), nn.ReLU()]
    return nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh())


def _patches(width: int = 64) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2)]
    for k, stride in ((1, 2), (2, 2), (4, 1)):
        layers += [
            nn.Conv2d(width * k, width * k * 2, 4, stride, 1),
            nn.InstanceNorm2d(width * k * 2),
            nn.LeakyReLU(0.2),
        ]
    return nn.Sequential(*layers, nn.Conv2d(width * 8, 1, 4, 1, 1))
