"""What one operator costs: FLOPs, bytes, and how many independent blocks of work it offers.

FLOPs of matrix products, convolutions and attention come from `torch.utils.flop_counter`; recurrent layers, which it
does not know, get 2 · 4 · h · (i + h) a step and sample (the four gates of Hochreiter and Schmidhuber 1997).
Everything else counts one operation for each element it writes. Views cost nothing.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

TILE = 128  # rows and columns of one output block of a matrix product (CUTLASS's default threadblock shape)
DEPTH = 512  # of the inner dimension that one block sums before libraries split it (split-K)
ELEMENTS = 1024  # of one block of an elementwise kernel: 256 threads of 4

_FREE = (
    "view",
    "_unsafe_view",
    "reshape",
    "t",
    "transpose",
    "permute",
    "expand",
    "slice",
    "select",
    "split",
    "unbind",
    "squeeze",
    "unsqueeze",
    "detach",
    "alias",
    "as_strided",
    "chunk",
    "narrow",
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "split_with_sizes",
    "unfold",
    "diagonal",
    "_reshape_alias",
    "lift_fresh",
    "resize_",
    "set_",
    "_local_scalar_dense",
    "is_same_size",
    "movedim",
    "view_as_real",
    "view_as_complex",
)
_ATTENTION = ("scaled_dot_product", "flash_attention", "efficient_attention")
_GATHERS = ("embedding", "index", "index_select", "gather", "embedding_bag", "_embedding_bag", "take_along_dim")
_RECURRENT = "rnn"  # our own operator: see `recurrent`


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCost:
    """One call of one operator."""

    name: str
    flops: float
    bytes: float
    blocks: float  # independent blocks of work: fewer than multiprocessors leave some idle
    serial: float = 1.0  # launches one after the other: the time steps of a recurrent layer
    half: bool  # computes in 16 bit
    product: bool  # matrix products, convolutions, attention: what tensor cores run
    convolution: bool = False  # cuDNN runs those in TF32 unless told otherwise (torch.backends.cudnn.allow_tf32)


def cost_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> OpCost | None:
    """Cost of one dispatched operator; None where it moves and computes nothing."""
    packet = func._overloadpacket
    space, _, name = str(packet).partition(".")
    if space == "prim" or name in _FREE or func.is_view:
        return None
    inputs, outputs = list(tensors((args, kwargs))), list(tensors(out))
    if not outputs and not inputs:
        return None
    flops, product = _flops(name, packet, args, kwargs, out, inputs)
    written = outputs or list(tensors(args[:1])) or inputs[:1]
    elements = float(sum(t.numel() for t in written))
    made = float(sum(_bytes(t) for t in _distinct(written)))
    read = made if name in _GATHERS else float(sum(_bytes(t) for t in _distinct(inputs)))
    return OpCost(
        name=f"{space}::{name}",
        flops=flops if product else elements,
        bytes=read + made,
        blocks=_product_blocks(flops, written[0]) if product else max(1.0, elements / ELEMENTS),
        serial=float(args[0].shape[0] * args[3]) if name.startswith(_RECURRENT) else 1.0,
        half=written[0].element_size() == 2,
        product=product,
        convolution=product and name.startswith(("convolution", "_convolution", "cudnn_convolution")),
    )


def _flops(
    name: str, packet: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, inputs: list[Any]
) -> tuple[float, bool]:
    """(FLOPs, is it a product); (0, False) for everything that is none."""
    from torch.utils.flop_counter import flop_registry

    if packet in flop_registry:
        return float(flop_registry[packet](*args, **kwargs, out_val=out)), True
    if any(word in name for word in _ATTENTION):
        query, key = (inputs[1], inputs[2]) if "backward" in name else (inputs[0], inputs[1])
        rows = math.prod(query.shape[:-1])
        # QKᵀ and PV; backward repeats the first and has four products of its own.
        return 2.0 * rows * key.shape[-2] * query.shape[-1] * (5 if "backward" in name else 2), True
    if name.startswith(_RECURRENT):
        weights = sum(t.numel() for t in args[1] if t.dim() == 2)  # to the gates, from input and from hidden
        samples = math.prod(args[0].shape[:-1])
        return 2.0 * weights * samples * (2 if "backward" in name else 1), True
    return 0.0, False


def _product_blocks(flops: float, out: Any) -> float:
    """Output tiles times the parts that the inner dimension is split in."""
    columns = out.shape[1] if out.dim() == 4 else out.shape[-1] if out.dim() else 1
    rows = max(1.0, out.numel() / max(1, columns))
    inner = flops / (2.0 * max(1, out.numel()))
    return float(math.ceil(rows / TILE) * math.ceil(columns / TILE) * max(1.0, inner / DEPTH))


def tensors(tree: Any) -> Iterable[Any]:
    """Every tensor in a nest of tuples, lists and dictionaries."""
    import torch

    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, tuple | list):
        for item in tree:
            yield from tensors(item)
    elif isinstance(tree, dict):
        yield from tensors(list(tree.values()))


def _distinct(found: list[Any]) -> list[Any]:
    return list({id(t): t for t in found}.values())


def _bytes(tensor: Any) -> int:
    """What a kernel must fetch: an expanded tensor is no longer than its storage."""
    return min(int(tensor.numel()) * int(tensor.element_size()), int(tensor.untyped_storage().nbytes()))
