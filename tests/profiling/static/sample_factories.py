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


def recurrent(kind: type[nn.RNNBase] = nn.LSTM, *, both_ways: bool = False, layers: int = 1) -> Traceable:
    """A recurrent network over 20 steps of 4 samples."""
    model = kind(32, 48, layers, bidirectional=both_ways, batch_first=True)
    x = torch.randn(4, 20, 32)
    return training(model, lambda: model(x)[0].square().sum(), torch.optim.SGD(model.parameters(), lr=0.1))


def encoder_and_decoder() -> Traceable:
    """The first network learns only through the state it hands to the second."""
    first, second = nn.GRU(32, 48), nn.GRU(32, 48)
    x = torch.randn(20, 4, 32)
    model = nn.ModuleList([first, second])

    def loss() -> torch.Tensor:
        return second(x, first(x)[1])[0].sum()

    return training(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


def encoder_layer() -> Traceable:
    """Inference of what torch would run as one operator on a CPU."""
    model = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
    x = torch.randn(4, 16, 64)
    return inference(model, lambda: model(x))


def dropped() -> Traceable:
    """Dropout between two layers of the same width."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1), nn.Linear(WIDTH, WIDTH))
    x = torch.randn(4096, WIDTH)
    return training(model, lambda: model(x).sum(), torch.optim.SGD(model.parameters(), lr=0.1))


def perceptron(foreach: bool | None = None) -> Traceable:
    """Layers of every common kind whose memory can be compared with a real run."""
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(512, 512), nn.LayerNorm(512), nn.GELU())))
    x, labels = torch.randn(1024, 512), torch.randint(512, (1024,))
    optimizer = torch.optim.Adam(model.parameters(), foreach=foreach)
    return training(model, lambda: functional.cross_entropy(model(x), labels), optimizer)


def clipped() -> Traceable:
    """One layer whose gradient is clipped."""
    model = nn.Linear(WIDTH, WIDTH, bias=False)
    x = torch.randn(BATCH, WIDTH)
    return training(model, lambda: model(x).sum(), torch.optim.SGD(model.parameters(), lr=0.1), clip_norm=1.0)


def unequal(longest: int | None = None) -> Traceable:
    """Usual inputs of 16 places, some of more."""
    model = nn.Linear(WIDTH, WIDTH)

    def loss(places: int = 16) -> torch.Tensor:
        return model(torch.randn(BATCH, places, WIDTH)).square().sum()

    largest = None if longest is None else (lambda: loss(longest))
    return training(model, loss, torch.optim.SGD(model.parameters(), lr=0.1), largest=largest)


def clicks() -> Traceable:
    """A loss on logits."""
    model = nn.Linear(WIDTH, 4096)
    x, truth = torch.randn(512, WIDTH), torch.rand(512, 4096)
    return training(
        model,
        lambda: functional.binary_cross_entropy_with_logits(model(x), truth),
        torch.optim.SGD(model.parameters(), lr=0.1),
    )


def convolution(*, amp: bool = False) -> Traceable:
    """One convolution that any device is busy with."""
    model = nn.Conv2d(256, 256, 3, padding=1)
    x = torch.randn(64, 256, 56, 56)
    return training(model, lambda: model(x).sum(), torch.optim.SGD(model.parameters(), lr=0.1), amp=amp)


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


def sparse() -> Traceable:
    """Gradients that fake tensors cannot represent."""
    model = nn.Embedding(1000, 16, sparse=True)
    words = torch.randint(1000, (32, 8))
    return training(model, lambda: model(words).sum(), torch.optim.SGD(model.parameters(), lr=0.1))


def on_a_gpu() -> Traceable:
    """Wants a device that is not there."""
    model = nn.Linear(4, 4).to("cuda")
    x = torch.randn(4, 4, device="cuda")
    return training(model, lambda: model(x).sum(), torch.optim.SGD(model.parameters(), lr=0.1))


OUTSIDE = nn.Linear(4, 4)


def made_at_import() -> Traceable:
    """Uses weights that are real."""
    x = torch.randn(4, 4)
    return training(OUTSIDE, lambda: OUTSIDE(x).sum(), torch.optim.SGD(OUTSIDE.parameters(), lr=0.1))


def idle() -> Traceable:
    """A step that computes nothing."""
    return Traceable(modules=(nn.Linear(4, 4),), step=lambda: None)


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
