"""Sees the operators of PyTorch at their launch: their identity, and the moments before and after they run.

The identity of an operator is its name and the shapes of its tensors. Views move no data and are part of the host, as
are the marks for PyTorch's profiler that optimizers set.

Calls of PyTorch's Python functions are seen at a fraction of the cost, and more coarsely: a backward pass is one call.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple, Self

import torch
from torch.nn.modules import module as module_hooks
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode, _get_current_function_mode
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


MIN_QUIET_CALLS = 8  # a shorter stretch is intercepted: to leave it out costs about as much


class _Stretch(NamedTuple):
    """A forward pass of an outermost module or a step of an optimizer: its calls by their places in the step of a job.
    `module` is None for an optimizer."""

    module: torch.nn.Module | None
    begin: int
    end: int


class _ModuleHook:
    """A hook of a module; in a copy of the module, and in a saved one, it does nothing and needs no interfere."""

    __slots__ = ("_act",)

    def __init__(self, act: Callable[..., None]) -> None:
        self._act = act

    def __call__(self, *args: Any) -> None:
        self._act(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")  # takes any arguments, returns None


class InterceptedCalls(TorchFunctionMode):
    """A context in which `before` and `after` are called around calls of PyTorch's functions in this thread.

    Every call is intercepted until `expect` has said what a step looks like. From then on calls that come as expected
    run at once, without `before` and `after`. The expected calls of a forward pass or of an optimizer's step are not
    even intercepted: the mode is taken off meanwhile, where it is on top of the stack, and put back.
    """

    def __init__(self, before: Callable[[Any, Any], None], after: Callable[[], None]) -> None:
        super().__init__()
        self._before, self._after, self._thread = before, after, threading.get_ident()
        self.place = 0  # in the step, of the next call
        self._expected: tuple[Any, ...] = ()
        self._planned: tuple[Any, ...] = ()  # the expected calls of a step that has not strayed
        self._stretches: list[_Stretch] = []  # of this step, in the measurement
        self._began: list[int] = []  # where the stretches that have not ended began
        self._quiet: dict[int, int] = {}  # where quiet stretches begin and end
        self._off_until = -1  # the end of the quiet stretch that runs; -1: the mode is on
        self._depth = 0  # stretches inside it
        self._handles = ExitStack()

    def __enter__(self) -> Self:
        super().__enter__()
        if not self._planned:
            self._watch(module_hooks.register_module_forward_pre_hook(self._begin_measured))
            self._watch(module_hooks.register_module_forward_hook(self._end_measured, always_call=True))
            self._watch(register_optimizer_step_pre_hook(self._begin_measured))
            self._watch(register_optimizer_step_post_hook(self._end_measured))
        return self

    def __exit__(self, *error: object) -> None:
        self._handles.close()
        self._put_back()
        super().__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        place = self.place
        self.place = place + 1
        if place < len(self._expected) and self._expected[place] == func:
            return func(*args, **kwargs) if kwargs else func(*args)
        self._before(func, args)
        result = func(*args, **(kwargs or {}))
        self._after()
        return result

    def begin_step(self) -> None:
        """Expect the first call of a step."""
        self._put_back()
        self.place, self._expected = 0, self._planned
        self._stretches, self._began = [], []

    def stray(self) -> None:
        """Expect nothing until the next step."""
        self._expected = ()

    def expect(self, calls: Sequence[Any], boundaries: Collection[int]) -> None:
        """Expect these calls in every step from the next on, but intercept those at the places `boundaries`."""
        self._planned = tuple(None if place in boundaries else call for place, call in enumerate(calls))
        quiet = [
            each
            for each in self._stretches
            if each.end - each.begin >= MIN_QUIET_CALLS and not any(each.begin <= at < each.end for at in boundaries)
        ]
        self._quiet = {each.begin: each.end for each in quiet}
        self._handles.close()
        for module in {id(each.module): each.module for each in quiet}.values():
            if module is not None:
                self._watch(module.register_forward_pre_hook(_ModuleHook(self._begin)))
                self._watch(module.register_forward_hook(_ModuleHook(self._end), always_call=True))
        if any(each.module is None for each in quiet):
            self._watch(register_optimizer_step_pre_hook(self._begin))
            self._watch(register_optimizer_step_post_hook(self._end))

    def _watch(self, handle: Any) -> None:
        self._handles.callback(handle.remove)

    # --- hooks of modules and optimizers, whose arguments begin with the module or the optimizer ----------------------

    def _begin_measured(self, *_: Any) -> None:
        if threading.get_ident() == self._thread:
            self._began.append(self.place)

    def _end_measured(self, owner: Any, *_: Any) -> None:
        if threading.get_ident() != self._thread or not self._began:
            return
        begin = self._began.pop()
        if not self._began:
            module = owner if isinstance(owner, torch.nn.Module) else None
            self._stretches.append(_Stretch(module, begin, self.place))

    def _begin(self, *_: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        if self._off_until >= 0:
            self._depth += 1
        elif self._expected and self.place in self._quiet and _get_current_function_mode() is self:
            self._off_until = self._quiet[self.place]
            super().__exit__(None, None, None)

    def _end(self, *_: Any) -> None:
        if threading.get_ident() != self._thread or self._off_until < 0:
            return
        if self._depth:
            self._depth -= 1
        else:
            self.place = self._off_until
            self._put_back()

    def _put_back(self) -> None:
        """Intercept again. An optimizer's step that failed has not said its end."""
        if self._off_until >= 0:
            self._off_until, self._depth = -1, 0
            super().__enter__()


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
