"""Computes the cost of one operator call: FLOPs, bytes, and the number of independent blocks of work.

FLOPs of matrix products, convolutions and attention come from `torch.utils.flop_counter`; recurrent layers, which it
does not know, get 2 · 4 · h · (i + h) a step and sample (the four gates of Hochreiter and Schmidhuber 1997).
Everything else counts one operation for each element it writes. Views cost nothing.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

TILE = 128  # rows and columns of one output block of a matrix product (CUTLASS's default threadblock shape)
SPLIT_K_DEPTH = 512  # part of the inner dimension that one block sums, where libraries split it (split-K)
BLOCK_ELEMENTS = 1024  # elements of one block of an elementwise kernel: 256 threads with 4 each

_WITHOUT_COST = (  # operators that neither compute nor move anything
    *("view", "_unsafe_view", "reshape", "t", "transpose", "permute", "expand"),
    *("slice", "select", "split", "unbind", "squeeze", "unsqueeze", "detach"),
    *("alias", "as_strided", "chunk", "narrow", "empty", "empty_like", "empty_strided"),
    *("new_empty", "new_empty_strided", "split_with_sizes", "unfold", "diagonal", "_reshape_alias", "lift_fresh"),
    *("resize_", "set_", "_local_scalar_dense", "is_same_size", "movedim", "view_as_real", "view_as_complex"),
)
_ATTENTION = ("scaled_dot_product", "flash_attention", "efficient_attention")
_GATHERS = ("embedding", "index", "index_select", "gather", "embedding_bag", "_embedding_bag", "take_along_dim")
_RECURRENT = "rnn"  # our own operator: see `trace`


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCost:
    """The cost of a call of an operator."""

    name: str
    flops: float
    bytes: float
    blocks: float  # independent blocks of work: fewer than multiprocessors leave some idle
    serial: float = 1.0  # launches that wait for one another: the time steps of a recurrent layer
    half: bool  # computes in 16 bits
    product: bool  # matrix products, convolutions, attention: what tensor cores run
    convolution: bool = False  # cuDNN runs those in TF32 unless told otherwise (torch.backends.cudnn.allow_tf32)


def operator_cost(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> OperatorCost | None:
    """Return the cost of an operator call; None for an operator that moves and computes nothing."""
    packet = func._overloadpacket
    namespace, _, name = str(packet).partition(".")
    if namespace == "prim" or name in _WITHOUT_COST or func.is_view:
        return None
    inputs, outputs = list(iter_tensors((args, kwargs))), list(iter_tensors(out))
    if not outputs and not inputs:
        return None
    flops, is_product = _flops(name, packet, args, kwargs, out, inputs)
    written = outputs or list(iter_tensors(args[:1])) or inputs[:1]
    elements = float(sum(tensor.numel() for tensor in written))
    written_bytes = float(sum(_traffic_bytes(tensor) for tensor in _distinct(written)))
    read_all_bytes = float(sum(_traffic_bytes(tensor) for tensor in _distinct(inputs)))
    read_bytes = written_bytes if name in _GATHERS else read_all_bytes
    return OperatorCost(
        name=f"{namespace}::{name}",
        flops=flops if is_product else elements,
        bytes=read_bytes + written_bytes,
        blocks=_product_blocks(flops, written[0]) if is_product else max(1.0, elements / BLOCK_ELEMENTS),
        serial=float(args[0].shape[0] * args[3]) if name.startswith(_RECURRENT) else 1.0,
        half=written[0].element_size() == 2,
        product=is_product,
        convolution=is_product and name.startswith(("convolution", "_convolution", "cudnn_convolution")),
    )


def _flops(
    name: str, packet: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, inputs: list[Any]
) -> tuple[float, bool]:
    """Return the FLOPs of a matrix product, convolution, attention or recurrent layer, and True.

    All other operators give (0, False).
    """
    from torch.utils.flop_counter import flop_registry

    if packet in flop_registry:
        return float(flop_registry[packet](*args, **kwargs, out_val=out)), True
    if any(word in name for word in _ATTENTION):
        query, key = (inputs[1], inputs[2]) if "backward" in name else (inputs[0], inputs[1])
        rows = math.prod(query.shape[:-1])
        # QKᵀ and PV; the backward pass repeats the first and has four products of its own.
        return 2.0 * rows * key.shape[-2] * query.shape[-1] * (5 if "backward" in name else 2), True
    if name.startswith(_RECURRENT):
        weights = sum(tensor.numel() for tensor in args[1] if tensor.dim() == 2)  # of the gates, on input and state
        samples = math.prod(args[0].shape[:-1])
        return 2.0 * weights * samples * (2 if "backward" in name else 1), True
    return 0.0, False


def _product_blocks(flops: float, out: Any) -> float:
    """Return the number of output tiles, times the parts into which the inner dimension is split."""
    columns = out.shape[1] if out.dim() == 4 else out.shape[-1] if out.dim() else 1
    rows = max(1.0, out.numel() / max(1, columns))
    inner = flops / (2.0 * max(1, out.numel()))
    return float(math.ceil(rows / TILE) * math.ceil(columns / TILE) * max(1.0, inner / SPLIT_K_DEPTH))


def iter_tensors(tree: Any) -> Iterable[Any]:
    """Yield every tensor in a nest of tuples, lists and dictionaries."""
    import torch

    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, tuple | list):
        for item in tree:
            yield from iter_tensors(item)
    elif isinstance(tree, dict):
        yield from iter_tensors(list(tree.values()))


def _distinct(tensors: list[Any]) -> list[Any]:
    return list({id(tensor): tensor for tensor in tensors}.values())


def _traffic_bytes(tensor: Any) -> int:
    """Return the bytes that a kernel must fetch for a tensor; an expanded tensor needs no more than its storage."""
    return min(int(tensor.numel()) * int(tensor.element_size()), int(tensor.untyped_storage().nbytes()))
