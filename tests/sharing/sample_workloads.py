"""Small real PyTorch jobs: one that waits between two parts of its step, one that is always busy, and unfit ones."""

import torch

from interfere.profiling.workloads import Pause, Step, Workload

PAUSE_S = 0.0005


def waiting(*, waits_first: bool = False) -> Workload:
    """Two products of matrices of different sizes, and after or before them half a millisecond of waiting."""

    def build() -> Step:
        small, large = torch.ones(8, 8), torch.ones(16, 16)

        def step(pause: Pause) -> None:
            if waits_first:
                pause(PAUSE_S)
            small @ small
            large @ large
            if not waits_first:
                pause(PAUSE_S)

        return step

    return Workload(name="waiting", description="", build=build, framework="torch")


def training(losses: list[float] | None = None) -> Workload:
    """The training of one dense layer; the loss of each step is appended to `losses`."""

    def build() -> Step:
        generator = torch.Generator().manual_seed(0)
        inputs, targets = torch.randn(32, 16, generator=generator), torch.randn(32, 1, generator=generator)
        weights = torch.zeros(16, 1, requires_grad=True)

        def step(pause: Pause) -> None:
            loss = (inputs @ weights - targets).square().mean()
            loss.backward()
            with torch.no_grad():
                weights.sub_(0.01 * weights.grad)
            weights.grad = None
            if losses is not None:
                losses.append(loss.item())

        return step

    return Workload(name="training", description="", build=build, framework="torch")


def failing() -> Workload:
    """A job that fails in its fifth step."""

    def build() -> Step:
        steps = iter(range(5))

        def step(pause: Pause) -> None:
            torch.ones(2) + 1
            if next(steps) == 4:
                raise OSError("the disk is gone")

        return step

    return Workload(name="failing", description="", build=build, framework="torch")


def without_operators() -> Workload:
    """A job whose steps launch nothing."""
    return Workload(name="silent", description="", build=lambda: lambda pause: pause(0.001))


def stubborn(*, swallows: bool) -> Workload:
    """A job that runs an operator while it is stopped, as PyTorch's optimizers do, and may swallow the stop as well."""

    def build() -> Step:
        def step(pause: Pause) -> None:
            try:
                torch.ones(2) + 1
            except BaseException:
                if not swallows:
                    raise
            finally:
                torch.ones(3) + 1

        return step

    return Workload(name="stubborn", description="", build=build, framework="torch")
