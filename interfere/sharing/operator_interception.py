"""Sees the operators of PyTorch at their launch: their identity, and the moments before and after they run.

The identity of an operator is its name and the shapes of its tensors. Views move no data and are part of the host, as
are the marks for PyTorch's profiler that optimizers set.

Calls of PyTorch's Python functions are seen at a fraction of the cost, and more coarsely: a backward pass is one call.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple, Self, TypeAlias

import torch
from torch._C import _len_torch_function_stack
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


Owner: TypeAlias = torch.nn.Module | torch.optim.Optimizer


class _Stretch(NamedTuple):
    """A forward pass of an outermost module or a step of an optimizer: its calls by their places in the step of a job.
    The passes and optimizer steps that end in it, inner ones too, are those from `first_end` on and before
    `last_end`."""

    owner: Owner
    begin: int
    end: int
    first_end: int
    last_end: int


class _QuietStretch(NamedTuple):
    """Calls that are not intercepted, from the begin of one stretch to the end of another or of the same one."""

    begin: int
    end: int
    first_owner: Owner
    last_owner: Owner
    ends: int  # passes of the last owner that end in it; it ends with the last of them
    last_call: Any  # it ends a segment; None: no segment ends here


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
    run at once, without `before` and `after`. From the begin of a forward pass to the end of the last one before a
    segment begins or ends, expected calls are not even intercepted: the mode is taken off meanwhile, where it is on top
    of the stack, and put back, where nobody has put another mode on it. The same holds for steps of optimizers.
    """

    def __init__(self, before: Callable[[Any, Any], None], after: Callable[[], None]) -> None:
        super().__init__()
        self._before, self._after, self._thread = before, after, threading.get_ident()
        self.place = 0  # in the step, of the next call
        self._expected: tuple[Any, ...] = ()
        self._planned: tuple[Any, ...] = ()  # the expected calls of a step that has not strayed
        self._stretches: list[_Stretch] = []  # of this step, in the measurement
        self._began: list[tuple[int, int]] = []  # where the stretches that have not ended began, and `first_end`
        self._ended: list[Owner] = []  # whose passes ended in this step
        self._quiet: dict[int, _QuietStretch] = {}  # by where they begin
        self._off: _QuietStretch | None = None  # that runs; None: the mode is on
        self._ends_left = 0  # of it
        self._stack_size = 0  # modes of others, when the mode was taken off
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
        if self._off is None:
            super().__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        place = self.place
        if place < len(self._expected) and self._expected[place] == func:
            self.place = place + 1
            return func(*args, **kwargs) if kwargs else func(*args)
        if getattr(func, "namespace", None) == "profiler":  # the marks that optimizers set around their steps
            return func(*args, **(kwargs or {}))
        self.place = place + 1
        self._before(func, args)
        result = func(*args, **(kwargs or {}))
        self._after()
        return result

    def begin_step(self) -> None:
        """Expect the first call of a step."""
        self._put_back()
        self.place, self._expected = 0, self._planned
        self._stretches, self._began, self._ended = [], [], []

    def stray(self) -> None:
        """Expect nothing until the next step."""
        self._expected = ()

    def expect(self, calls: Sequence[Any], begins: Collection[int], ends: Collection[int]) -> None:
        """Expect these calls in every step from the next on, but intercept those at which segments begin and end.

        Where the last call of an optimizer's step ends a segment, the segment ends with the step.
        """
        boundaries = {*begins, *ends}
        self._planned = tuple(None if place in boundaries else call for place, call in enumerate(calls))
        quiet_stretches = [self._joined(run, calls, ends) for run in self._runs_between(boundaries, ends) if run]
        self._quiet = {each.begin: each for each in quiet_stretches if each.end - each.begin >= MIN_QUIET_CALLS}
        self._handles.close()
        for owner in {id(quiet.first_owner): quiet.first_owner for quiet in self._quiet.values()}.values():
            if isinstance(owner, torch.nn.Module):
                self._watch(owner.register_forward_pre_hook(_ModuleHook(self._begin)))
        for owner in {id(quiet.last_owner): quiet.last_owner for quiet in self._quiet.values()}.values():
            if isinstance(owner, torch.nn.Module):
                self._watch(owner.register_forward_hook(_ModuleHook(self._end), always_call=True))
        self._watch(register_optimizer_step_pre_hook(self._begin))
        self._watch(register_optimizer_step_post_hook(self._end))

    def _runs_between(self, boundaries: Collection[int], ends: Collection[int]) -> list[list[_Stretch]]:
        """Return the longest runs of stretches in which no segment begins, and none ends but with the last stretch."""
        runs: list[list[_Stretch]] = [[]]
        for stretch in self._stretches:
            last = runs[-1][-1] if runs[-1] else None
            if last and (_ends_segment(last, ends) or _any_within(boundaries, last.end, stretch.begin)):
                runs.append([])
            if _any_within(boundaries, stretch.begin, stretch.end - _ends_segment(stretch, ends)):
                runs.append([])
            else:
                runs[-1].append(stretch)
        return runs

    def _joined(self, run: Sequence[_Stretch], calls: Sequence[Any], ends: Collection[int]) -> _QuietStretch:
        first, last = run[0], run[-1]
        return _QuietStretch(
            begin=first.begin,
            end=last.end,
            first_owner=first.owner,
            last_owner=last.owner,
            ends=sum(owner is last.owner for owner in self._ended[first.first_end : last.last_end]),
            last_call=calls[last.end - 1] if _ends_segment(last, ends) else None,
        )

    def _watch(self, handle: Any) -> None:
        self._handles.callback(handle.remove)

    # --- hooks of modules and optimizers, whose arguments begin with the module or the optimizer ----------------------

    def _begin_measured(self, *_: Any) -> None:
        if threading.get_ident() == self._thread:
            self._began.append((self.place, len(self._ended)))

    def _end_measured(self, owner: Owner, *_: Any) -> None:
        if threading.get_ident() != self._thread or not self._began:
            return
        self._ended.append(owner)
        begin, first_end = self._began.pop()
        if not self._began:
            self._stretches.append(_Stretch(owner, begin, self.place, first_end, len(self._ended)))

    def _begin(self, owner: Owner, *_: Any) -> None:
        if threading.get_ident() != self._thread or self._off is not None or not self._expected:
            return
        quiet = self._quiet.get(self.place)
        if quiet is not None and quiet.first_owner is owner and _get_current_function_mode() is self:
            self._off, self._ends_left = quiet, quiet.ends
            super().__exit__(None, None, None)
            self._stack_size = _len_torch_function_stack()

    def _end(self, owner: Owner, *_: Any) -> None:
        quiet = self._off
        if threading.get_ident() != self._thread or quiet is None or quiet.last_owner is not owner:
            return
        self._ends_left -= 1
        if self._ends_left == 0:
            self.place = quiet.end
            self._put_back()
            if quiet.last_call is not None and self._off is None:
                self._before(quiet.last_call, ())
                self._after()

    def _put_back(self) -> None:
        """Intercept again, unless the program has put a mode of its own on the stack. A pass that failed has not said
        its end."""
        if self._off is not None and _len_torch_function_stack() == self._stack_size:
            self._off = None
            super().__enter__()


def _ends_segment(stretch: _Stretch, ends: Collection[int]) -> bool:
    """Return whether a segment ends with a stretch. PyTorch's optimizers do nothing after their last call."""
    return isinstance(stretch.owner, torch.optim.Optimizer) and stretch.end - 1 in ends


def _any_within(places: Collection[int], begin: int, end: int) -> bool:
    return any(begin <= place < end for place in places)


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
