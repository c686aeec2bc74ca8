"""Language models: an LSTM on Wikitext-2, a translating Transformer on Multi30k, BERT-base on SQuAD.

Vaswani et al. 2017; Devlin et al. 2019; the LSTM is PyTorch's word_language_model example with its default sizes.
Attention is several operators, as in the measured programs of 2019-2021, before it was one kernel.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from interfere.profiling.static import Traceable, training

WIKITEXT_WORDS = 33_278
SOURCE_WORDS, TARGET_WORDS = (
    2_909,
    3_149,
)  # words that occur more than 5 times in Multi30k, as jadore801120's port counts them
USUAL_LENGTH, MAX_LENGTH = 32, 52  # words of a sentence: in most batches, and the limit that the same port prints
BERT_WORDS, SQUAD_LENGTH = 30_522, 384
DROPOUT = 0.1


class LstmModel(nn.Module):
    """A language model: embedding, two LSTM layers, and a projection onto all words."""

    def __init__(self, width: int = 200, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(WIKITEXT_WORDS, width)
        self.lstm = nn.LSTM(width, width, layers, dropout=0.2)
        self.project = nn.Linear(width, WIKITEXT_WORDS)

    def forward(self, words: Tensor) -> Tensor:
        hidden = functional.dropout(self.embed(words), 0.2)
        return self.project(functional.dropout(self.lstm(hidden)[0], 0.2))


def lstm_wikitext(batch: int, amp: bool = False, clip_norm: float | None = None) -> Traceable:
    """Return a training step of an LSTM over 35 words of Wikitext-2; Gavel's script clips the gradient, Lucid's does
    not."""
    model = LstmModel()
    words, next_words = (torch.randint(WIKITEXT_WORDS, (35, batch)) for _ in range(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def loss() -> Tensor:
        return functional.cross_entropy(model(words).flatten(0, 1), next_words.flatten())

    return training(model, loss, optimizer, amp=amp, clip_norm=clip_norm)


class Attention(nn.Module):
    """Attention in which scores, softmax, dropout and weighted sum are separate kernels."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (
            project(source).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project, source in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1]) + mask
        context = functional.dropout(scores.softmax(-1), DROPOUT) @ v
        return self.out(context.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """A Transformer layer: self-attention, in a decoder also attention to the source, then two dense layers."""

    def __init__(self, width: int, heads: int, act: nn.Module, *, decodes: bool = False) -> None:
        super().__init__()
        self.attend = nn.ModuleList(Attention(width, heads) for _ in range(1 + decodes))
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), act, nn.Linear(4 * width, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 + decodes))

    def forward(
        self, x: Tensor, mask: Tensor, memory: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        x = self.norms[0](x + functional.dropout(self.attend[0](x, x, mask), DROPOUT))
        if memory is not None:
            x = self.norms[1](x + functional.dropout(self.attend[1](x, memory, memory_mask), DROPOUT))
        return self.norms[-1](x + functional.dropout(self.dense(x), DROPOUT))


class TranslationModel(nn.Module):
    """The base Transformer for translation; with `tied`, target words and output share a matrix."""

    def __init__(self, *, tied: bool, width: int = 512, heads: int = 8, depth: int = 6) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(SOURCE_WORDS, width), nn.Embedding(TARGET_WORDS, width)
        self.encode = nn.ModuleList(Layer(width, heads, nn.ReLU()) for _ in range(depth))
        self.decode = nn.ModuleList(Layer(width, heads, nn.ReLU(), decodes=True) for _ in range(depth))
        self.words = nn.Linear(width, TARGET_WORDS, bias=False)
        if tied:
            self.words.weight = self.target.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padding = torch.zeros(len(source), 1, 1, source.shape[1])
        causal = torch.full((target.shape[1], target.shape[1]), float("-inf")).triu(1)
        memory, hidden = self.source(source), self.target(target)
        for layer in self.encode:
            memory = layer(memory, padding)
        for layer in self.decode:
            hidden = layer(hidden, causal, memory, padding)
        return self.words(hidden)


def transformer_multi30k(batch: int, amp: bool = False, tied: bool = True) -> Traceable:
    """Return a training step of a translating Transformer. Gavel's command ties the output matrix, Lucid's does not."""
    model = TranslationModel(tied=tied)

    def loss(length: int = USUAL_LENGTH) -> Tensor:
        source = torch.randint(SOURCE_WORDS, (batch, length))
        target, next_words = (torch.randint(TARGET_WORDS, (batch, length)) for _ in range(2))
        return functional.cross_entropy(model(source, target).flatten(0, 1), next_words.flatten(), reduction="sum")

    optimizer = torch.optim.Adam(model.parameters())
    return training(model, loss, optimizer, amp=amp, largest=lambda: loss(MAX_LENGTH))


class BertModel(nn.Module):
    """The BERT-base encoder with a head that marks start and end of an answer."""

    def __init__(self, width: int = 768, layers: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.words, self.segments = nn.Embedding(BERT_WORDS, width), nn.Embedding(2, width)
        self.positions = nn.Parameter(torch.zeros(512, width))
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, heads, nn.GELU()) for _ in range(layers))
        self.span = nn.Linear(width, 2)

    def forward(self, words: Tensor) -> Tensor:
        embedded = self.words(words) + self.positions[: words.shape[1]] + self.segments(torch.zeros_like(words))
        hidden = functional.dropout(self.norm(embedded), DROPOUT)
        padding = torch.zeros(len(words), 1, 1, words.shape[1])
        for layer in self.layers:
            hidden = layer(hidden, padding)
        return self.span(hidden)


def bert_squad(batch: int, amp: bool = False) -> Traceable:
    """Return a training step of BERT-base on SQuAD, 384 tokens a sample."""
    model = BertModel()
    words, start, end = (
        torch.randint(BERT_WORDS, (batch, SQUAD_LENGTH)),
        torch.randint(SQUAD_LENGTH, (batch,)),
        torch.randint(SQUAD_LENGTH, (batch,)),
    )

    def loss() -> Tensor:
        logits = model(words)
        return functional.cross_entropy(logits[..., 0], start) + functional.cross_entropy(logits[..., 1], end)

    return training(model, loss, torch.optim.AdamW(model.parameters()), amp=amp)
