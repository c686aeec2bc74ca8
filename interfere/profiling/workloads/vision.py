"""Vision workloads: a small residual network, trained from memory and with input that has to be waited for."""

from collections.abc import Callable
from typing import Any

from interfere.profiling.workloads.workload import Answer, Pause, Step, built_in, built_in_service

SIDE, CLASSES = 32, 10  # images of CIFAR-10's shape


def _resnet(widths: tuple[int, ...]) -> tuple[Any, Callable[[Any], Any]]:
    """Return parameters and forward pass of a residual network (He et al. 2016, section 4.2), one block a width."""
    from torch import nn

    stem = nn.Conv2d(3, widths[0], 3, padding=1)
    blocks = []
    for before, after in zip((widths[0], *widths), widths, strict=False):
        stride = 1 if before == after else 2
        body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )
        skip = nn.Identity() if before == after else nn.Conv2d(before, after, 1, stride=stride, bias=False)
        blocks.append((body, skip))
    head = nn.Linear(widths[-1], CLASSES)

    def forward(images: Any) -> Any:
        hidden = stem(images).relu()
        for body, skip in blocks:
            hidden = (body(hidden) + skip(hidden)).relu()
        return head(hidden.mean((2, 3)))

    modules = nn.ModuleList([stem, head, *(part for block in blocks for part in block)])
    return list(modules.parameters()), forward


def _trainer(widths: tuple[int, ...]) -> Callable[[Any, Any], None]:
    import torch
    from torch.nn import functional

    parameters, forward = _resnet(widths)
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def train(images: Any, labels: Any) -> None:
        optimizer.zero_grad()
        functional.cross_entropy(forward(images), labels).backward()
        optimizer.step()

    return train


@built_in("resnet-train", "small ResNet training, CIFAR shapes, batch in memory: always busy", "torch")
def build_resnet_train() -> Step:
    """Build the training of a small ResNet on a batch that is already in memory: always busy."""
    import torch

    train = _trainer((16, 32, 64))
    images, labels = torch.randn(8, 3, SIDE, SIDE), torch.randint(CLASSES, (8,))

    def step(pause: Pause) -> None:
        train(images, labels)

    return step


@built_in(
    "resnet-input",
    "data loading with input stalls: read (6 ms wait), decompress, augment, train a small ResNet",
    "torch",
)
def build_resnet_input() -> Step:
    """Build an input-bound training loop: read (wait for the storage), decompress, augment, train."""
    import zlib

    import numpy as np
    import torch

    rng = np.random.default_rng(0)
    train = _trainer((16, 32))
    labels = torch.randint(CLASSES, (4,))
    smooth = np.cumsum(rng.integers(-2, 3, (4, 3, SIDE, SIDE)), axis=-1).astype(np.uint8)
    files = [zlib.compress(image.tobytes()) for image in smooth]

    def step(pause: Pause) -> None:
        pause(0.006)  # seconds until the storage answers
        images = np.stack([np.frombuffer(zlib.decompress(file), np.uint8).reshape(3, SIDE, SIDE) for file in files])
        flipped = images[..., ::-1].astype(np.float32) / 255.0
        train(torch.from_numpy(flipped), labels)

    return step


@built_in_service("image-classifier", "one image classified by a small ResNet", "torch", requests_per_s=(350, 500, 800))
def build_image_classifier() -> Answer:
    """Build a service that classifies one image of CIFAR's shape."""
    import torch

    _, forward = _resnet((16, 32))
    image = torch.randn(1, 3, SIDE, SIDE)

    def answer() -> Any:
        with torch.inference_mode():
            return forward(image).argmax()

    return answer
