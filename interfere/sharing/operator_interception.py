"""Sees the operators of PyTorch at their launch: their identity, and the moments before and after they run.

The identity of an operator is its name and the shapes of its tensors. Views move no data and are part of the host, as
are the marks for PyTorch's profiler that optimizers set.

Calls of PyTorch's Python functions are seen at a tenth of the cost, and more coarsely: a backward pass is one call.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from interfere.timeline.timelines import KernelIdentity


class _OperatorInterceptor(TorchDispatchMode):
    def __init__(self, before: Callable[[KernelIdentity], None], after: Callable[[], None]) -> None:
        super().__init__()
        self._before, self._after = before, after

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: operators are only run here, and the guard against compiling them costs as much as a view."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.is_view or func.namespace == "profiler":
            return func(*args, **(kwargs or {}))
        self._before(identity_of(func, args))
        result = func(*args, **(kwargs or {}))
        self._after()
        return result


def intercepted_operators(
    before: Callable[[KernelIdentity], None], after: Callable[[], None]
) -> AbstractContextManager[Any]:
    """Return a context in which `before` and `after` are called around each operator of this thread."""
    return _OperatorInterceptor(before, after)


class InterceptedCalls(TorchFunctionMode):
    """A context in which `before` and `after` are called around calls of PyTorch's functions in this thread.

    `expected`: the calls of a step, in order; those that come as expected run at once, without `before` and `after`.
    None stands for a call that is not to run so.
    """

    def __init__(self, before: Callable[[Any, Any], None], after: Callable[[], None]) -> None:
        super().__init__()
        self._before, self._after = before, after
        self.expected: Sequence[Any] = ()
        self.place = 0  # in the step, of the next call

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        place = self.place
        self.place = place + 1
        if place < len(self.expected) and self.expected[place] == func:
            return func(*args, **kwargs) if kwargs else func(*args)
        self._before(func, args)
        result = func(*args, **(kwargs or {}))
        self._after()
        return result


@contextmanager
def operators_on_one_core() -> Iterator[None]:
    """Run the operators of this process on one thread meanwhile, so that their CPU time is their duration."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def identity_of(func: Any, args: Any) -> KernelIdentity:
    """Return the identity of an operator or a function with its arguments."""
    return _identity(func, _shapes(args))


def _shapes(args: Any) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the tensors among the arguments, those in lists included."""
    shapes: list[tuple[int, ...]] = []
    for arg in args:
        if isinstance(arg, torch.Tensor):
            shapes.append(tuple(arg.shape))
        elif isinstance(arg, list | tuple):
            shapes += (tuple(item.shape) for item in arg if isinstance(item, torch.Tensor))
    return tuple(shapes)


@lru_cache(maxsize=16_384)  # operators of different shapes that one process launches
def _identity(func: Any, shapes: tuple[tuple[int, ...], ...]) -> KernelIdentity:
    sizes = ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)
    return KernelIdentity(name=f"{func}({sizes})")
