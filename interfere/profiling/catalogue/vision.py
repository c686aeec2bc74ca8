"""Convolutional classifiers: residual networks, VGG, MobileNet V2 and V3, EfficientNet-B0.

Shapes follow the papers (He et al. 2016; Simonyan and Zisserman 2015; Sandler et al. 2018; Howard et al. 2019; Tan and
Le 2019); on CIFAR-10 the stems keep the resolution, as the usual ports to 32 × 32 images do.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from interfere.profiling.static import Traceable, training

CIFAR, IMAGENET = (32, 10), (224, 1000)  # (pixels a side, classes)


def classify(model: nn.Module, batch: int, data: tuple[int, int], amp: bool, momentum: float = 0.9) -> Traceable:
    """Return a training step of an image classifier: cross entropy and SGD. The CIFAR-10 scripts use momentum."""
    pixels, classes = data
    images, labels = torch.randn(batch, 3, pixels, pixels), torch.randint(classes, (batch,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum, weight_decay=5e-4)
    return training(model, lambda: functional.cross_entropy(model(images), labels), optimizer, amp=amp)


def conv_norm(
    i: int, o: int, kernel: int, stride: int = 1, groups: int = 1, act: type[nn.Module] | None = nn.ReLU
) -> nn.Module:
    """Return a convolution, a batch norm and, with `act`, an activation."""
    layers: list[nn.Module] = [
        nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(o),
    ]
    return nn.Sequential(*layers, *([act()] if act else []))


class Residual(nn.Module):
    """A residual block, x + f(x); x is projected where the shape changes."""

    def __init__(self, body: nn.Module, i: int, o: int, stride: int) -> None:
        super().__init__()
        self.body = body
        self.skip = nn.Identity() if stride == 1 and i == o else conv_norm(i, o, 1, stride, act=None)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.skip(x))


def _resnet(blocks: tuple[int, ...], bottleneck: bool, pixels: int, classes: int) -> nn.Module:
    small = pixels <= 64
    layers: list[nn.Module] = [conv_norm(3, 64, 3 if small else 7, 1 if small else 2)]
    layers += [] if small else [nn.MaxPool2d(3, 2, 1)]
    i = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        o = width * (4 if bottleneck else 1)
        for k in range(count):
            stride = 2 if stage and k == 0 else 1
            body = (
                (conv_norm(i, width, 1), conv_norm(width, width, 3, stride), conv_norm(width, o, 1, act=None))
                if bottleneck
                else (conv_norm(i, width, 3, stride), conv_norm(width, o, 3, act=None))
            )
            layers.append(Residual(nn.Sequential(*body), i, o, stride))
            i = o
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, classes))


def resnet18(batch: int, amp: bool = False, data: tuple[int, int] = CIFAR) -> Traceable:
    """Return a training step of ResNet-18."""
    return classify(_resnet((2, 2, 2, 2), False, *data), batch, data, amp)


def resnet50(batch: int, amp: bool = False, momentum: float = 0.9) -> Traceable:
    """Return a training step of ResNet-50 on ImageNet."""
    return classify(_resnet((3, 4, 6, 3), True, *IMAGENET), batch, IMAGENET, amp, momentum)


def vgg11(batch: int, amp: bool = False) -> Traceable:
    """Return a training step of VGG-11 with batch norm on CIFAR-10."""
    layers: list[nn.Module] = []
    i = 3
    for o in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        layers.append(conv_norm(i, o, 3) if o else nn.MaxPool2d(2))
        i = o or i
    return classify(nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10)), batch, CIFAR, amp)


class SqueezeExcite(nn.Module):
    """A squeeze-and-excitation block (Hu et al. 2018): channels weighed by a function of their means."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, inner, 1),
            nn.ReLU(),
            nn.Conv2d(inner, channels, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale(x)


class InvertedResidual(nn.Module):
    """Inverted residual block: expand, depthwise convolution, project; with a shortcut where the shape stays."""

    def __init__(self, i: int, wide: int, o: int, kernel: int, stride: int, act: type[nn.Module], squeeze: int) -> None:
        super().__init__()
        expand = [conv_norm(i, wide, 1, act=act)] if wide != i else []
        squeeze_excite = [SqueezeExcite(wide, squeeze)] if squeeze else []
        self.body = nn.Sequential(
            *expand, conv_norm(wide, wide, kernel, stride, wide, act), *squeeze_excite, conv_norm(wide, o, 1, act=None)
        )
        self.has_shortcut = stride == 1 and i == o

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.has_shortcut else self.body(x)


def mobilenet_v2(batch: int, amp: bool = False) -> Traceable:
    """Return a training step of MobileNetV2, width 1, on CIFAR-10."""
    layers: list[nn.Module] = [conv_norm(3, 32, 3, act=nn.ReLU6)]
    i = 32
    for expand, o, count, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 1),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for k in range(count):
            layers.append(InvertedResidual(i, i * expand, o, 3, stride if k == 0 else 1, nn.ReLU6, 0))
            i = o
    layers += [conv_norm(i, 1280, 1, act=nn.ReLU6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 10)]
    return classify(nn.Sequential(*layers), batch, CIFAR, amp)


def mobilenet_v3(batch: int, amp: bool = False, momentum: float = 0.9) -> Traceable:
    """Return a training step of MobileNetV3-Large on ImageNet."""
    blocks = (
        (3, 16, 16, 0, 0, 1),
        (3, 64, 24, 0, 0, 2),
        (3, 72, 24, 0, 0, 1),
        (5, 72, 40, 1, 0, 2),
        (5, 120, 40, 1, 0, 1),
        (5, 120, 40, 1, 0, 1),
        (3, 240, 80, 0, 1, 2),
        (3, 200, 80, 0, 1, 1),
        (3, 184, 80, 0, 1, 1),
        (3, 184, 80, 0, 1, 1),
        (3, 480, 112, 1, 1, 1),
        (3, 672, 112, 1, 1, 1),
        (5, 672, 160, 1, 1, 2),
        (5, 960, 160, 1, 1, 1),
        (5, 960, 160, 1, 1, 1),
    )
    layers: list[nn.Module] = [conv_norm(3, 16, 3, 2, act=nn.Hardswish)]
    i = 16
    for kernel, wide, o, squeeze, swish, stride in blocks:
        layers.append(
            InvertedResidual(i, wide, o, kernel, stride, nn.Hardswish if swish else nn.ReLU, squeeze * wide // 4)
        )
        i = o
    layers += [conv_norm(i, 960, 1, act=nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    layers += [nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, 1000)]
    return classify(nn.Sequential(*layers), batch, IMAGENET, amp, momentum)


def efficientnet_b0(batch: int, amp: bool = False) -> Traceable:
    """Return a training step of EfficientNet-B0 on CIFAR-10."""
    layers: list[nn.Module] = [conv_norm(3, 32, 3, act=nn.SiLU)]
    i = 32
    for expand, o, count, kernel, stride in (
        (1, 16, 1, 3, 1),
        (6, 24, 2, 3, 2),
        (6, 40, 2, 5, 2),
        (6, 80, 3, 3, 2),
        (6, 112, 3, 5, 1),
        (6, 192, 4, 5, 2),
        (6, 320, 1, 3, 1),
    ):
        for k in range(count):
            squeeze = max(1, math.ceil(i / 4))
            layers.append(InvertedResidual(i, i * expand, o, kernel, stride if k == 0 else 1, nn.SiLU, squeeze))
            i = o
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 10)]
    return classify(nn.Sequential(*layers), batch, CIFAR, amp)
