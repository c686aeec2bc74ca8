"""Profiles jobs that never run: one step is traced under fake tensors and timed by the roofline of a device.

What a trace needs of a job is a `Traceable`: modules, optimizers, and one step that uses them. A factory builds all
three. It is called under fake tensors, so building a model of any size allocates nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interfere.errors import InvalidInputError

if TYPE_CHECKING:
    import torch
    from torch import nn

StepFunction = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traceable:
    """A job to trace: modules, a step, and for training its optimizers."""

    modules: "tuple[nn.Module, ...]"
    step: StepFunction
    optimizers: "tuple[torch.optim.Optimizer, ...]" = ()
    repeats: int = 1  # how often one reported step runs `step`, e.g. once for each batch of an epoch
    largest: StepFunction | None = None  # the step on the largest input, where inputs differ: it sets the memory


Factory = Callable[[], Traceable]


def training(
    model: "nn.Module",
    loss: "Callable[[], torch.Tensor]",
    optimizer: "torch.optim.Optimizer",
    *,
    amp: bool = False,
    clip_norm: float | None = None,
    repeats: int = 1,
    largest: "Callable[[], torch.Tensor] | None" = None,
) -> Traceable:
    """Return a training step of a model: forward, backward, update. `amp` computes in half precision where autocast
    does.

    `loss` computes the loss of a usual input, and `largest` the loss of the largest input, where inputs differ in size.
    """
    import torch

    def step(loss: "Callable[[], torch.Tensor]" = loss) -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            value = loss()
        value.backward()
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm, foreach=True)  # torch's default on a GPU
        optimizer.step()

    return Traceable(
        modules=(model,),
        step=step,
        optimizers=(optimizer,),
        repeats=repeats,
        largest=None if largest is None else lambda: step(largest),
    )


def inference(model: "nn.Module", forward: "Callable[[], torch.Tensor]", *, amp: bool = False) -> Traceable:
    """Return an inference step of a model: the forward pass alone."""
    import torch

    model.eval()

    def step() -> None:
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            forward()

    return Traceable(modules=(model,), step=step)


def build_traceable(factory: object, name: str) -> Traceable:
    """Return the job that `factory` builds. Raises InvalidInputError when the result is no Traceable."""
    job = factory() if callable(factory) else factory
    if not isinstance(job, Traceable):
        raise InvalidInputError(
            f"{name} did not return a Traceable",
            value=type(job).__name__,
            remedy="return interfere.profiling.static.training(model, loss, optimizer)",
        )
    return job
