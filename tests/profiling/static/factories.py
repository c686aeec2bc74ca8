"""Small models, and broken ones, as a user would hand them in."""

import sys

import torch
from torch import nn
from torch.nn import functional

from interfere.profiling.static import Traceable, inference, training

WIDTH, BATCH = 256, 32


def linear(batch: int = BATCH, *, adam: bool = False, amp: bool = False) -> Traceable:
    """One layer, no bias."""
    model = nn.Linear(WIDTH, WIDTH, bias=False)
    x = torch.randn(batch, WIDTH)
    maker = torch.optim.Adam if adam else torch.optim.SGD
    return training(model, lambda: model(x).sum(), maker(model.parameters(), lr=0.1), amp=amp)


def linear_adam() -> Traceable:
    """The same with two moments."""
    return linear(adam=True)


def linear_half() -> Traceable:
    """The same under autocast."""
    return linear(amp=True)


def linear_forward() -> Traceable:
    """Inference."""
    model = nn.Linear(WIDTH, WIDTH, bias=False)
    x = torch.randn(BATCH, WIDTH)
    return inference(model, lambda: model(x))


def _attention(*, fused: bool) -> Traceable:
    project = nn.Linear(64, 3 * 64)
    x = torch.randn(4, 8, 128, 64)  # batch, heads, places, width

    def loss() -> torch.Tensor:
        q, k, v = project(x).chunk(3, -1)
        if fused:
            return functional.scaled_dot_product_attention(q, k, v).sum()
        return ((q @ k.transpose(-1, -2) / 8.0).softmax(-1) @ v).sum()

    return training(project, loss, torch.optim.SGD(project.parameters(), lr=0.1))


def attention_fused() -> Traceable:
    """One operator."""
    return _attention(fused=True)


def attention_spelled_out() -> Traceable:
    """Two matrix products and a softmax."""
    return _attention(fused=False)


def recurrent() -> Traceable:
    """LSTM over 20 steps of 4 samples."""
    model = nn.LSTM(32, 48)
    x = torch.randn(20, 4, 32)
    return training(model, lambda: model(x)[0].square().sum(), torch.optim.SGD(model.parameters(), lr=0.1))


def seven_billion() -> Traceable:
    """32 layers of width 4,096 with 32,000 words: 7 billion parameters, 28 GB if they were allocated."""
    embed, head = nn.Embedding(32_000, 4096), nn.Linear(4096, 32_000, bias=False)
    layer = nn.TransformerEncoderLayer(4096, 32, 4 * 4096, batch_first=True, norm_first=True)
    model = nn.Sequential(embed, nn.TransformerEncoder(layer, 32, enable_nested_tensor=False), head)
    words, following = torch.randint(32_000, (1, 2048)), torch.randint(32_000, (2048,))
    optimizer = torch.optim.AdamW(model.parameters())
    return training(model, lambda: functional.cross_entropy(model(words)[0], following), optimizer)


def data_dependent() -> Traceable:
    """Asks for a value that nobody computed."""
    model = nn.Linear(4, 4)
    x = torch.randn(4, 4)
    return training(
        model, lambda: model(x).sum() * (1 if x.sum().item() > 0 else 2), torch.optim.SGD(model.parameters())
    )


def not_traceable() -> nn.Module:
    """A module alone."""
    return nn.Linear(4, 4)


def leaves() -> Traceable:
    """Ends the process."""
    print("about to leave")
    sys.exit(7)


def waits() -> Traceable:
    """Never comes back."""
    import time

    time.sleep(60)
    return linear()
