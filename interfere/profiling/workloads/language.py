"""Language workloads: BERT-like inference in batches and for requests, GPT-like decoding, LSTM training."""

from collections.abc import Callable
from typing import Any

from interfere.profiling.workloads.workload import Pause, Step, built_in

WIDTH, HEADS = 128, 4


def _encoder(batch: int, tokens: int) -> Callable[[], Any]:
    import torch
    from torch import nn

    torch.backends.mha.set_fastpath_enabled(False)  # the fused path is one operator whose FLOPs cannot be counted
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True, activation="gelu")
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    embedding = nn.Embedding(8000, WIDTH)
    ids = torch.randint(8000, (batch, tokens))

    def infer() -> Any:
        with torch.inference_mode():
            return encoder(embedding(ids)).mean(1)

    return infer


@built_in("bert-infer", "BERT-like encoder scoring batches offline: always busy", "torch")
def build_bert_infer() -> Step:
    """Build offline scoring of one batch after another by a small BERT, which keeps the device always busy."""
    infer = _encoder(batch=8, tokens=64)

    def step(pause: Pause) -> None:
        infer()

    return step


@built_in("bert-serve", "BERT-like encoder behind requests, gaps of 1-8 ms", "torch")
def build_bert_serve() -> Step:
    """Build four requests of two sentences each to a small BERT; every step has the same four gaps between them."""
    infer = _encoder(batch=2, tokens=64)

    def step(pause: Pause) -> None:
        for gap_s in (0.001, 0.005, 0.002, 0.008):
            infer()
            pause(gap_s)

    return step


@built_in("gpt-decode", "GPT-like decoding with cached keys and values, each token streamed out (1 ms)", "torch")
def build_gpt_decode() -> Step:
    """Build the decoding of eight tokens with cached keys and values; each token is streamed out in 1 ms."""
    import torch
    from torch import nn
    from torch.nn import functional

    depth, width, heads, context = 4, 192, 6, 128
    layers = [
        (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
            torch.zeros(2, 1, heads, context, width // heads),
        )
        for _ in range(depth)
    ]
    embedding, head = nn.Embedding(4000, width), nn.Linear(width, 4000, bias=False)
    token, position = torch.zeros(1, dtype=torch.long), 0

    def decode() -> None:
        nonlocal token, position
        hidden = embedding(token)  # float32[1, width]
        for norm, qkv, out, norm2, mlp, cache in layers:
            q, k, v = qkv(norm(hidden)).view(1, 3, heads, 1, width // heads).unbind(1)
            cache[0, :, :, position : position + 1], cache[1, :, :, position : position + 1] = k, v
            hidden = hidden + out(functional.scaled_dot_product_attention(q, cache[0], cache[1]).view(1, width))
            hidden = hidden + mlp(norm2(hidden))
        token, position = head(hidden).argmax(-1), (position + 1) % context

    def step(pause: Pause) -> None:
        for _ in range(8):
            with torch.inference_mode():
                decode()
            pause(0.001)

    return step


@built_in("lstm-train", "character LSTM training: always busy, many small operators", "torch")
def build_lstm_train() -> Step:
    """Build the training of a next-character LSTM: always busy, many small operators."""
    import torch
    from torch import nn
    from torch.nn import functional

    embedding, lstm, head = nn.Embedding(96, 64), nn.LSTM(64, 256, batch_first=True), nn.Linear(256, 96)
    optimizer = torch.optim.Adam([*embedding.parameters(), *lstm.parameters(), *head.parameters()], lr=1e-3)
    text = torch.randint(96, (16, 49))

    def step(pause: Pause) -> None:
        optimizer.zero_grad()
        logits = head(lstm(embedding(text[:, :-1]))[0])
        functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()).backward()
        optimizer.step()

    return step
