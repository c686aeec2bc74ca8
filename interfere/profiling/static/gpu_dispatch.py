"""Makes a trace on the CPU dispatch the operators that PyTorch dispatches on a GPU, where the two differ.

On a CPU, dropout is three operators and keeps a float mask; attention with dropout and recurrent layers are split into
many operators; an encoder layer in inference is one operator whose parts cannot be counted; and optimizers update one
parameter at a time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def gpu_dispatch() -> Iterator[None]:
    """Dispatch dropout, attention and recurrent layers as one operator each, and encoder layers in parts."""
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    from interfere.profiling.static import recurrent

    class FusedOperators(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func is functional.dropout:
                return _dropout(*args, **kwargs)
            if func is functional.scaled_dot_product_attention and kwargs.get("dropout_p"):
                kwargs = {**kwargs, "dropout_p": 0.0}  # the fused kernels draw the mask inside: no traffic, no FLOPs
            if func in recurrent.GATES and isinstance(
                args[2], list | tuple
            ):  # of a packed batch the third argument is no state
                return recurrent.fused_layer(func, *args)
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
