"""Image generation models: DCGAN (Radford et al. 2016) and CycleGAN (Zhu et al. 2017).

Each has the sizes that the measured programs set.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from interfere.profiling.static import Traceable


def dcgan(batch: int, amp: bool = False, width: int = 64) -> Traceable:
    """Return a training step of DCGAN on 64 × 64 images: first the critic, then the generator."""
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
    """Return a training step of CycleGAN: two generators of nine residual blocks, two critics, cycle and identity
    losses."""
    a_to_b, b_to_a, critic_a, critic_b = _translator(), _translator(), _patch_critic(), _patch_critic()
    image_a, image_b = torch.randn(batch, 3, pixels, pixels), torch.randn(batch, 3, pixels, pixels)
    generator_optimizer = torch.optim.Adam([*a_to_b.parameters(), *b_to_a.parameters()])
    critic_optimizer = torch.optim.Adam([*critic_a.parameters(), *critic_b.parameters()])

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            fake_b, fake_a = a_to_b(image_a), b_to_a(image_b)
            cycle_loss = functional.l1_loss(b_to_a(fake_b), image_a) + functional.l1_loss(a_to_b(fake_a), image_b)
            identity_loss = functional.l1_loss(a_to_b(image_b), image_b) + functional.l1_loss(b_to_a(image_a), image_a)
            adversarial_loss = critic_b(fake_b).square().mean() + critic_a(fake_a).square().mean()
            loss = 10 * cycle_loss + 5 * identity_loss + adversarial_loss
        generator_optimizer.zero_grad()
        loss.backward()
        generator_optimizer.step()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            critic_loss = sum(
                critic(image).square().mean()
                for critic, image in (
                    (critic_a, image_a),
                    (critic_a, fake_a.detach()),
                    (critic_b, image_b),
                    (critic_b, fake_b.detach()),
                )
            )
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()

    return Traceable(
        modules=(a_to_b, b_to_a, critic_a, critic_b), step=step, optimizers=(generator_optimizer, critic_optimizer)
    )


def adversarial(generator: nn.Module, critic: nn.Module, noise: Tensor, real: Tensor, *, amp: bool) -> Traceable:
    """Return a training step of the critic on real and generated images, then of the generator against the critic."""
    generator_optimizer = torch.optim.Adam(generator.parameters())
    critic_optimizer = torch.optim.Adam(critic.parameters())

    def critic_loss(images: Tensor, label: float) -> Tensor:
        score = critic(images)
        return functional.binary_cross_entropy_with_logits(score, torch.full_like(score, label))

    def step() -> None:
        critic_optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            generated = generator(noise)
            loss = critic_loss(real, 1.0) + critic_loss(generated.detach(), 0.0)
        loss.backward()
        critic_optimizer.step()
        generator_optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            generator_loss = critic_loss(generated, 1.0)
        generator_loss.backward()
        generator_optimizer.step()

    return Traceable(modules=(generator, critic), step=step, optimizers=(generator_optimizer, critic_optimizer))


class _ResidualBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        first = (nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width))
        second = (nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width))
        self.body = nn.Sequential(*first, nn.ReLU(), *second)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def _translator(width: int = 64) -> nn.Module:
    layers: list[nn.Module] = [nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7), nn.InstanceNorm2d(width), nn.ReLU()]
    for k in (1, 2):
        layers += [nn.Conv2d(width * k, width * k * 2, 3, 2, 1), nn.InstanceNorm2d(width * k * 2), nn.ReLU()]
    layers += [_ResidualBlock(width * 4) for _ in range(9)]
    for k in (4, 2):
        upsample = nn.Upsample(scale_factor=2)
        layers += [
            upsample,
            nn.Conv2d(width * k, width * k // 2, 3, 1, 1),
            nn.InstanceNorm2d(width * k // 2),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh())


def _patch_critic(width: int = 64) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2)]
    for k, stride in ((1, 2), (2, 2), (4, 1)):
        layers += [
            nn.Conv2d(width * k, width * k * 2, 4, stride, 1),
            nn.InstanceNorm2d(width * k * 2),
            nn.LeakyReLU(0.2),
        ]
    return nn.Sequential(*layers, nn.Conv2d(width * 8, 1, 4, 1, 1))
