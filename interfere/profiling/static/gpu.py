"""Makes a trace on the CPU dispatch what PyTorch dispatches on a GPU, where the two differ in kind.

On a CPU dropout is three operators and keeps a float mask, attention with dropout is written out, recurrent layers are
taken apart, an encoder layer in inference is one operator that nobody can look into, and optimizers take one parameter
at a time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def dispatched_as_on_a_gpu() -> Iterator[None]:
    """Dropout, attention and recurrent layers as one operator each, encoder layers as their parts."""
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    from interfere.profiling.static import recurrent

    class OneKernel(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func is functional.dropout:
                return _dropout(*args, **kwargs)
            if func is functional.scaled_dot_product_attention and kwargs.get("dropout_p"):
                kwargs = {**kwargs, "dropout_p": 0.0}  # the fused kernels draw the mask inside: no traffic, no FLOPs
            if func in recurrent.GATES and isinstance(args[2], list | tuple):  # a packed batch has its states there
                return recurrent.whole(func, *args)
            return func(*args, **kwargs)

    def _dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if training and 0 < p < 1 and not inplace:
            return torch.native_dropout(x, p, True)[0]
        return torch.dropout_(x, p, training) if inplace else torch.dropout(x, p, training)

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with OneKernel():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def step_all_at_once(optimizer: Any) -> None:
    """One launch for the tensors of all parameters, where the user left the choice to torch: its default on a GPU."""
    for group in optimizer.param_groups:
        if "foreach" in group and group["foreach"] is None and not group.get("fused"):
            group["foreach"] = True
