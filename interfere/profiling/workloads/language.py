"""Language workloads: BERT-like inference in batches and for requests, GPT-like decoding, LSTM training."""

from collections.abc import Callable, Iterator
from typing import Any

from interfere.profiling.workloads.workload import Answer, Pause, Step, built_in, built_in_service

WIDTH, HEADS = 128, 4


def _encoder(batch: int, tokens: int) -> Callable[[], Any]:
    """Return the forward pass of a small BERT on one batch."""
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


def _decoder(depth: int, width: int) -> Callable[[], None]:
    """Return the decoding of one token by a small GPT with cached keys and values, to be called in inference mode."""
    import torch
    from torch import nn
    from torch.nn import functional

    heads, context = 6, 128
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

    return decode


@built_in("gpt-decode", "GPT-like decoding with cached keys and values, each token streamed out (1 ms)", "torch")
def build_gpt_decode() -> Step:
    """Build the decoding of eight tokens with cached keys and values; each token is streamed out in 1 ms."""
    import torch

    decode = _decoder(depth=4, width=192)

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


@built_in_service(
    "sentence-encoder", "embedding of one sentence by a small BERT", "torch", requests_per_s=(400, 700, 1000)
)
def build_sentence_encoder() -> Answer:
    """Build a service that encodes one sentence of 16 tokens with two transformer layers."""
    return _encoder(batch=1, tokens=16)


@built_in_service("gpt-chat", "four tokens decoded by a small GPT", "torch", requests_per_s=(350, 500, 700))
def build_gpt_chat() -> Answer:
    """Build a service that decodes the next four tokens of a conversation with cached keys and values."""
    import torch

    decode = _decoder(depth=1, width=192)

    def answer() -> Iterator[None]:
        for _ in range(4):
            with torch.inference_mode():
                decode()
            yield

    return answer


@built_in_service("speech-frames", "frames of speech labelled by an LSTM", "torch", requests_per_s=(750, 1300, 2000))
def build_speech_frames() -> Answer:
    """Build a service that labels forty frames of speech with an LSTM that keeps its state between requests."""
    import torch
    from torch import nn

    lstm, head = nn.LSTM(40, 128, batch_first=True), nn.Linear(128, 48)
    frames = torch.randn(1, 40, 40)
    state = (torch.zeros(1, 1, 128), torch.zeros(1, 1, 128))

    def answer() -> Any:
        nonlocal state
        with torch.inference_mode():
            hidden, state = lstm(frames, state)
            return head(hidden).argmax(-1)

    return answer
