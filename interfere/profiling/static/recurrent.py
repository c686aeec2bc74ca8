"""Defines one operator for a whole stack of recurrent layers, as cuDNN runs it; on a CPU torch splits it into steps.

The operator has shapes and gradients but no kernel: it is only called with fake tensors. What it keeps for the
backward pass is an estimate, the activated gates and the state of every step and layer: cuDNN does not document its
reserve space.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

GATES = {torch.lstm: 4, torch.gru: 3, torch.rnn_tanh: 1, torch.rnn_relu: 1}
NAME = "interfere::rnn"

torch.library.define(
    NAME,
    "(Tensor x, Tensor[] weights, Tensor[] states, int stacked, int out, int reserved)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define(
    NAME + "_backward",
    "(Tensor x, Tensor[] weights, Tensor[] states, int stacked, Tensor reserve, Tensor gradient) -> Tensor[]",
)


def _shapes(
    x: Tensor, _weights: Sequence[Tensor], states: Sequence[Tensor], stacked: int, out: int, reserved: int
) -> tuple[Tensor, ...]:
    """Return empty tensors in the shapes of a recurrent stack's results.

    For an input float[t, n, i] they are: outputs float[t, n, out], last states, and float[stacked, t, n, reserved] kept
    for the backward pass.
    """
    steps, samples, _ = x.shape
    last, cell = (torch.empty_like(states[k], dtype=x.dtype) for k in (0, -1))
    return x.new_empty(steps, samples, out), last, cell, x.new_empty(stacked, steps, samples, reserved)


def _gradient_shapes(x: Tensor, weights: Sequence[Tensor], states: Sequence[Tensor], *_: Any) -> list[Tensor]:
    """Return empty tensors in the shapes of the gradients of input, weights and states, in this order."""
    return [torch.empty_like(tensor) for tensor in (x, *weights, *states)]


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weights, states, stacked, *_ = inputs
    ctx.stacked, ctx.weights = stacked, len(weights)
    ctx.save_for_backward(x, output[3], *weights, *states)


def _gradients(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Any, ...]:
    x, reserve, *parameters = ctx.saved_tensors
    weights, states = parameters[: ctx.weights], parameters[ctx.weights :]
    gradients = torch.ops.interfere.rnn_backward(x, weights, states, ctx.stacked, reserve, gradient)
    return gradients[0], gradients[1 : 1 + ctx.weights], gradients[1 + ctx.weights :], None, None, None


torch.library.register_fake(NAME, _shapes)
torch.library.register_fake(NAME + "_backward", _gradient_shapes)
torch.library.register_autograd(NAME, _gradients, setup_context=_save_for_backward)


def fused_layer(
    func: Any,
    x: Tensor,
    state: Any,
    weights: Sequence[Tensor],
    _bias: bool,
    layers: int,
    _dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """Compute `torch.lstm`, `gru`, `rnn_tanh` or `rnn_relu` by one operator, for inputs of one length."""
    states = list(state) if isinstance(state, tuple | list) else [state]
    if torch.is_autocast_enabled(x.device.type):
        half = torch.get_autocast_dtype(x.device.type)
        x, weights, states = x.to(half), [w.to(half) for w in weights], [s.to(half) for s in states]
    directions, width = 1 + bidirectional, weights[1].shape[0] // GATES[func]
    reserved = (GATES[func] + 1) * width if train else 0
    out, last, cell, _ = torch.ops.interfere.rnn(
        x.transpose(0, 1) if batch_first else x,
        list(weights),
        states,
        layers * directions,
        directions * states[0].shape[-1],
        reserved,
    )
    out = out.transpose(0, 1) if batch_first else out
    return (out, last, cell) if func is torch.lstm else (out, last)
