"""Traces one step of a job under fake tensors: every operator it would launch, and the memory it would hold.

Law 1: nothing runs and nothing is allocated; only shapes and types are computed.
Law 2: model + gradient + optimizer + activation bytes are never less than the peak, which counts them together.

A trace on the CPU dispatches the operators that PyTorch dispatches on a GPU, where the two differ: on a CPU, dropout is
three operators and keeps a float mask; attention with dropout and recurrent layers are split into many operators; an
encoder layer in inference is one operator whose parts cannot be counted; and optimizers update one parameter at a time.
"""

import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from interfere.errors import InterfereError, InvalidInputError
from interfere.profiling.static import Factory, Traceable, build_traceable
from interfere.profiling.static.operator_costs import OperatorCost, iter_tensors, operator_cost


@contextmanager
def gpu_dispatch() -> Iterator[None]:
    """Dispatch dropout, attention and recurrent layers as one operator each, as a GPU does, and encoder layers in
    parts."""

    class FusedOperators(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func is functional.dropout:
                return _dropout(*args, **kwargs)
            if func is functional.scaled_dot_product_attention and kwargs.get("dropout_p"):
                kwargs = {**kwargs, "dropout_p": 0.0}  # the fused kernels draw the mask inside: no traffic, no FLOPs
            if func in GATES and isinstance(args[2], list | tuple):  # of a packed batch the third argument is no state
                return _recurrent_layers(func, *args)
            return func(*args, **kwargs)

    def _dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if training and 0 < p < 1 and not inplace:
            return torch.native_dropout(x, p, True)[0]
        return torch.dropout_(x, p, training) if inplace else torch.dropout(x, p, training)

    fastpath_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with FusedOperators():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath_enabled)


def use_foreach(optimizer: Any) -> None:
    """Update all parameters in one launch, as torch does on a GPU, unless the user decided otherwise."""
    for group in optimizer.param_groups:
        if "foreach" in group and group["foreach"] is None and not group.get("fused"):
            group["foreach"] = True


ROUND_BYTES = 512  # PyTorch's caching allocator hands out memory in such blocks (CUDACachingAllocator, kMinBlockSize)
REMEDIES = (  # (part of torch's message, what helps); the first that fits
    ("sparse", "build it with sparse=False: fake tensors know no sparse gradients"),
    ("cuda", "build it on the CPU: the device type is only named, nothing runs on it"),
    ("nvidia", "build it on the CPU: the device type is only named, nothing runs on it"),  # no driver
    (
        "_local_scalar_dense",
        "no .item(), no branch on a value, no gradient scaler inside the step: there are no values",
    ),
    ("allow_non_fake_inputs", "make every tensor and module inside the factory, none at import"),
    ("", "build and run it on fake tensors: no data-dependent shapes, no numpy"),
)


class MemoryUse(StrEnum):
    """The uses of memory: model, gradient, optimizer state, activation."""

    MODEL = "model"
    GRADIENT = "gradient"
    OPTIMIZER = "optimizer"
    ACTIVATION = "activation"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticTrace:
    """The operators and the memory of a step of a job after a first step, the same for any device."""

    calls: tuple[tuple[OperatorCost, int], ...]  # distinct operators with their calls in one step, in order
    model_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    activation_bytes: float  # largest sum alive at once of everything else
    peak_bytes: float  # largest sum alive at once of everything
    touched_bytes: float  # distinct storages that the step reads or writes
    repeats: int

    @property
    def flops(self) -> float:
        """The FLOPs of a reported step."""
        return self.repeats * sum(cost.flops * calls for cost, calls in self.calls)

    @property
    def bytes(self) -> float:
        """The bytes moved in a reported step: the operands of every operator, without any caching."""
        return self.repeats * sum(cost.bytes * calls for cost, calls in self.calls)


def trace_step(factory: Factory, name: str = "the factory") -> StaticTrace:
    """Return the trace of a job's second step; the first step made gradients and optimizer state.

    `name` is the name of the job in errors. Raises InvalidInputError for a job that cannot be traced.
    """
    with (
        warnings.catch_warnings(),
        _fake_tensor_mode(),
        gpu_dispatch(),
        torch.random.fork_rng(devices=()),
    ):
        # Copying a module of fake tensors makes torch look at their addresses; nothing depends on the answer.
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
        try:
            return _trace_second_step(build_traceable(factory, name), name)
        except InterfereError:
            raise
        except Exception as error:  # whatever somebody's model raises
            first_line = (str(error).splitlines() or [""])[0]
            message = f"{error!r}".lower()
            raise InvalidInputError(
                f"{name} cannot be traced",
                value=f"{type(error).__name__}: {first_line}",
                remedy=next(remedy for part, remedy in REMEDIES if part in message),
            ) from error


def _trace_second_step(job: Traceable, name: str) -> StaticTrace:
    memory = _StorageTracker()
    # 1. Prepare: optimizers as on a GPU, parameters counted as model.
    for optimizer in job.optimizers:
        use_foreach(optimizer)
    for module in job.modules:
        for tensor in (*module.parameters(), *module.buffers()):
            memory.hold(tensor, MemoryUse.MODEL)
    with _gradients_counted(job.modules, memory):
        # 2. The first step makes the optimizer state.
        _record_step(job.step, memory)
        for optimizer in job.optimizers:
            for state in optimizer.state.values():
                for tensor in iter_tensors(list(state.values())):
                    memory.hold(tensor, MemoryUse.OPTIMIZER)
        # 3. The second step is the one that counts.
        memory.restart_peaks()
        calls = _record_step(job.step, memory)
        touched_bytes = memory.touched_bytes
        # 4. The largest input, where there is one, sets the memory.
        if job.largest is not None:
            memory.restart_peaks()
            _record_step(job.largest, memory)
    if not calls:
        raise InvalidInputError(
            f"{name} computed nothing in its second step",
            value="0 operators",
            remedy="let every call of the step do the whole work",
        )
    return StaticTrace(
        calls=tuple(calls.items()),
        model_bytes=memory.peak_bytes[MemoryUse.MODEL],
        gradient_bytes=memory.peak_bytes[MemoryUse.GRADIENT],
        optimizer_bytes=memory.peak_bytes[MemoryUse.OPTIMIZER],
        activation_bytes=memory.peak_bytes[MemoryUse.ACTIVATION],
        peak_bytes=memory.total_peak_bytes,
        touched_bytes=touched_bytes,
        repeats=job.repeats,
    )


def _fake_tensor_mode() -> Any:
    class SharedMode(FakeTensorMode):
        """A fake-tensor mode that deep copies share instead of copying (nn.Transformer deep-copies its layers)."""

        def __deepcopy__(self, memo: dict[int, Any]) -> "SharedMode":
            return self

    return SharedMode()


class _StorageTracker:
    """The memory that is alive, by use, and the largest sums so far."""

    def __init__(self) -> None:
        self._storages: dict[int, tuple[Any, int, MemoryUse]] = {}  # weak reference, bytes, use
        self._live_bytes: Counter[MemoryUse] = Counter()
        self._touched: set[int] = set()
        self.restart_peaks()

    def restart_peaks(self) -> None:
        """Reset the peaks and the set of touched storages. Storages that are alive are kept."""
        self.peak_bytes = Counter(self._live_bytes)
        self.total_peak_bytes, self.touched_bytes = float(sum(self._live_bytes.values())), 0.0
        self._touched.clear()

    def hold(self, tensor: Any, use: MemoryUse) -> None:
        """Count the memory of a tensor under a use. Memory that was counted under another use moves there."""
        if tensor is None:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._storages.get(key)
        if known is not None:
            reference, size_bytes, known_use = known
            self._live_bytes[known_use] -= size_bytes
            self._storages[key] = (reference, size_bytes, use)
            self._grow(use, size_bytes)
            return
        size_bytes = -(-int(storage.nbytes()) // ROUND_BYTES) * ROUND_BYTES

        def release(_: Any, key: int = key) -> None:
            _, freed_bytes, freed_use = self._storages.pop(key)
            self._live_bytes[freed_use] -= freed_bytes
            self._touched.discard(key)

        self._storages[key] = (weakref.ref(storage, release), size_bytes, use)
        self._grow(use, size_bytes)

    def touch(self, operands: Any) -> None:
        """Count the memory that an operator reads or writes; memory that is not known yet is an activation."""
        for tensor in iter_tensors(operands):
            key = tensor.untyped_storage()._cdata
            if key not in self._storages:
                self.hold(tensor, MemoryUse.ACTIVATION)
            if key not in self._touched:
                self._touched.add(key)
                self.touched_bytes += self._storages[key][1]

    def _grow(self, use: MemoryUse, size_bytes: int) -> None:
        self._live_bytes[use] += size_bytes
        self.peak_bytes[use] = max(self.peak_bytes[use], self._live_bytes[use])
        self.total_peak_bytes = max(self.total_peak_bytes, float(sum(self._live_bytes.values())))


@contextmanager
def _gradients_counted(modules: Any, memory: _StorageTracker) -> Iterator[None]:
    """Count every gradient of a parameter as gradient memory once it is accumulated, until the `with` block ends."""
    hooks = [
        parameter.register_post_accumulate_grad_hook(lambda p: memory.hold(p.grad, MemoryUse.GRADIENT))
        for module in modules
        for parameter in module.parameters()
        if parameter.requires_grad
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _record_step(step: Callable[[], None], memory: _StorageTracker) -> Counter[OperatorCost]:
    """Run a step on fake tensors. Return how often each operator was called, by its cost."""
    calls: Counter[OperatorCost] = Counter()

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func is torch.ops.aten.binary_cross_entropy_with_logits.default:
                with self:  # it has no kernel of its own: it calls others, each with a result as large as its input
                    return decomposition_table[func](*args, **kwargs)
            if torch.is_inference_mode_enabled() and func.namespace == "aten":
                with self:  # in inference mode torch does not split operators that are made of others
                    out = func.decompose(*args, **kwargs)
                if out is not NotImplemented:
                    return out
            out = func(*args, **kwargs)
            cost = operator_cost(func, args, kwargs, out)
            if cost is not None:
                memory.touch((args, kwargs))
                memory.touch(out)
                calls[cost] += 1
            return out

    with Recorder():
        step()
    return calls


# --- recurrent layers as one operator ----------------------------------------------------------------------

GATES = {torch.lstm: 4, torch.gru: 3, torch.rnn_tanh: 1, torch.rnn_relu: 1}
# One operator for a whole stack of recurrent layers, as cuDNN runs it. It has shapes and gradients but no kernel: it
# is only called with fake tensors. What it keeps for the backward pass is an estimate, the activated gates and the
# state of every step and layer: cuDNN does not document its reserve space.
RECURRENT, RECURRENT_BACKWARD = "interfere::rnn", "interfere::rnn_backward"

torch.library.define(
    RECURRENT,
    "(Tensor x, Tensor[] weights, Tensor[] states, int stacked, int out, int reserved)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define(
    RECURRENT_BACKWARD,
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


torch.library.register_fake(RECURRENT, _shapes)
torch.library.register_fake(RECURRENT_BACKWARD, _gradient_shapes)
torch.library.register_autograd(RECURRENT, _gradients, setup_context=_save_for_backward)


def _recurrent_layers(
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
