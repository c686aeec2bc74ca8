"""One step of a job, traced under fake tensors: every operator it would launch, and the memory it would hold.

Law 1: nothing runs and nothing is allocated; shapes and types alone are computed.
Law 2: model + gradient + optimizer + activation bytes are never less than the peak, which counts them together.
"""

import warnings
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from interfere.errors import InterfereError, InvalidInputError
from interfere.profiling.static.formulas import OpCost, cost_of, tensors
from interfere.profiling.static.gpu import dispatched_as_on_a_gpu, step_all_at_once
from interfere.profiling.static.traceable import Factory, made_by

ROUND_BYTES = 512  # PyTorch's caching allocator hands out memory in such blocks (CUDACachingAllocator, kMinBlockSize)
MODEL, GRADIENT, OPTIMIZER, ACTIVATION = "model", "gradient", "optimizer", "activation"
REMEDIES = (  # (what torch says, what helps); the first that fits
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticTrace:
    """One steady-state step on any device."""

    calls: tuple[tuple[OpCost, int], ...]  # distinct operators with their calls in one step, in order of appearance
    model_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    activation_bytes: float  # most alive at once of all that is neither of the others
    peak_bytes: float  # most alive at once of everything
    touched_bytes: float  # distinct storages that the step reads or writes
    repeats: int

    @property
    def flops(self) -> float:
        """Of one reported step."""
        return self.repeats * sum(cost.flops * calls for cost, calls in self.calls)

    @property
    def bytes(self) -> float:
        """Of one reported step: operands of every operator, as if no cache kept them."""
        return self.repeats * sum(cost.bytes * calls for cost, calls in self.calls)


def trace(factory: Factory, name: str = "the factory") -> StaticTrace:
    """Trace the second step of a job: the first one makes gradients and optimizer state. Raises InvalidInputError."""
    import torch

    with (
        warnings.catch_warnings(),
        _fake_tensors(),
        dispatched_as_on_a_gpu(),
        torch.random.fork_rng(devices=()),
    ):
        # Copying a module of fake tensors makes torch look at their addresses; nothing depends on the answer.
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
        try:
            job = made_by(factory, name)
            for optimizer in job.optimizers:
                step_all_at_once(optimizer)
            memory = _Memory()
            for module in job.modules:
                for tensor in (*module.parameters(), *module.buffers()):
                    memory.hold(tensor, MODEL)
            with _gradients_marked(job.modules, memory):
                with _recorder(memory):
                    job.step()
                for optimizer in job.optimizers:
                    for state in optimizer.state.values():
                        for tensor in tensors(list(state.values())):
                            memory.hold(tensor, OPTIMIZER)
                memory.restart()
                with _recorder(memory) as calls:
                    job.step()
                touched = memory.touched
                if job.largest is not None:
                    memory.restart()
                    with _recorder(memory):
                        job.largest()
        except InterfereError:
            raise
        except Exception as error:  # whatever somebody's model raises
            line = (str(error).splitlines() or [""])[0]
            told = f"{error!r}".lower()
            raise InvalidInputError(
                f"{name} cannot be traced",
                value=f"{type(error).__name__}: {line}",
                remedy=next(remedy for sign, remedy in REMEDIES if sign in told),
            ) from error
        if not calls:
            raise InvalidInputError(
                f"{name} computed nothing in its second step",
                value="0 operators",
                remedy="let every call of the step do the whole work",
            )
        return StaticTrace(
            calls=tuple(calls.items()),
            model_bytes=memory.peak[MODEL],
            gradient_bytes=memory.peak[GRADIENT],
            optimizer_bytes=memory.peak[OPTIMIZER],
            activation_bytes=memory.peak[ACTIVATION],
            peak_bytes=memory.peak_total,
            touched_bytes=touched,
            repeats=job.repeats,
        )


def _fake_tensors() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    class OneMode(FakeTensorMode):
        """Copies of a module (nn.Transformer makes its layers so) stay in this mode instead of copying it too."""

        def __deepcopy__(self, memo: dict[int, Any]) -> "OneMode":
            return self

    return OneMode()


class _Memory:
    """Live storages by kind, and the most there ever were."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Any, int, str]] = {}
        self._live: Counter[str] = Counter()
        self._touched: set[int] = set()
        self.restart()

    def restart(self) -> None:
        """Peaks from now on."""
        self.peak, self.peak_total, self.touched = Counter(self._live), float(sum(self._live.values())), 0.0
        self._touched.clear()

    def hold(self, tensor: Any, kind: str) -> None:
        """Count the storage of a tensor under a kind; a storage counted before moves there."""
        if tensor is None:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._held.get(key)
        if known is not None:
            self._live[known[2]] -= known[1]
            self._held[key] = (known[0], known[1], kind)
            self._grow(kind, known[1])
            return
        size = -(-int(storage.nbytes()) // ROUND_BYTES) * ROUND_BYTES

        def gone(_: Any, key: int = key) -> None:
            freed = self._held.pop(key)
            self._live[freed[2]] -= freed[1]
            self._touched.discard(key)

        self._held[key] = (weakref.ref(storage, gone), size, kind)
        self._grow(kind, size)

    def see(self, found: Any) -> None:
        """Storages that an operator reads or makes; new ones are activations."""
        for tensor in tensors(found):
            key = tensor.untyped_storage()._cdata
            if key not in self._held:
                self.hold(tensor, ACTIVATION)
            if key not in self._touched:
                self._touched.add(key)
                self.touched += self._held[key][1]

    def _grow(self, kind: str, size: int) -> None:
        self._live[kind] += size
        self.peak[kind] = max(self.peak[kind], self._live[kind])
        self.peak_total = max(self.peak_total, float(sum(self._live.values())))


@contextmanager
def _gradients_marked(modules: Any, memory: _Memory) -> Iterator[None]:
    hooks = [
        parameter.register_post_accumulate_grad_hook(lambda p: memory.hold(p.grad, GRADIENT))
        for module in modules
        for parameter in module.parameters()
        if parameter.requires_grad
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _recorder(memory: _Memory) -> Iterator[Counter[OpCost]]:
    """Counts every operator that reaches the dispatcher."""
    import torch
    from torch._decomp import decomposition_table
    from torch.utils._python_dispatch import TorchDispatchMode

    calls: Counter[OpCost] = Counter()

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func is torch.ops.aten.binary_cross_entropy_with_logits.default:
                with self:  # no kernel of its own anywhere: it calls others, each with a result as large as its input
                    return decomposition_table[func](*args, **kwargs)
            if torch.is_inference_mode_enabled() and func.namespace == "aten":
                with self:  # there torch leaves operators whole that are made of others
                    out = func.decompose(*args, **kwargs)
                if out is not NotImplemented:
                    return out
            out = func(*args, **kwargs)
            cost = cost_of(func, args, kwargs, out)
            if cost is not None:
                memory.see((args, kwargs))
                memory.see(out)
                calls[cost] += 1
            return out

    with Recorder():
        yield calls
