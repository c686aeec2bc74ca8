"""Language models: LSTM on Wikitext-2, a translating Transformer on Multi30k, BERT-base on SQuAD.

Vaswani et al. 2017; Devlin et al. 2019; the LSTM is PyTorch's word_language_model example with its default sizes.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from interfere.profiling.static.traceable import Traceable, training

WIKITEXT_WORDS = 33_278
MULTI30K_WORDS = 9_521  # lower-cased words that occur often enough, English side
MULTI30K_LENGTH = 32
BERT_WORDS, SQUAD_LENGTH = 30_522, 384


class LstmModel(nn.Module):
    """Embedding, two LSTM layers, a projection onto all words."""

    def __init__(self, width: int = 200, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(WIKITEXT_WORDS, width)
        self.lstm = nn.LSTM(width, width, layers, dropout=0.2)
        self.project = nn.Linear(width, WIKITEXT_WORDS)

    def forward(self, words: Tensor) -> Tensor:
        return self.project(functional.dropout(self.lstm(self.embed(words))[0], 0.2))


def lstm_wikitext(batch: int, amp: bool = False, steps: int = 35) -> Traceable:
    """Truncated backpropagation over `steps` words."""
    model = LstmModel()
    words, next_words = (torch.randint(WIKITEXT_WORDS, (steps, batch)) for _ in range(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, foreach=True)

    def loss() -> Tensor:
        return functional.cross_entropy(model(words).flatten(0, 1), next_words.flatten())

    return training(model, loss, optimizer, amp=amp)


class TranslationModel(nn.Module):
    """The base Transformer with one embedding for source, target and output."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(MULTI30K_WORDS, 512)
        self.core = nn.Transformer(512, 8, 6, 6, 2048, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = torch.full((target.shape[1], target.shape[1]), float("-inf")).triu(1)
        hidden = self.core(self.embed(source), self.embed(target), tgt_mask=mask, tgt_is_causal=True)
        return functional.linear(hidden, self.embed.weight)


def transformer_multi30k(batch: int, amp: bool = False) -> Traceable:
    """Teacher-forced translation of sentences of 32 words."""
    model = TranslationModel()
    source, target, next_words = (torch.randint(MULTI30K_WORDS, (batch, MULTI30K_LENGTH)) for _ in range(3))
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)

    def loss() -> Tensor:
        return functional.cross_entropy(model(source, target).flatten(0, 1), next_words.flatten())

    return training(model, loss, optimizer, amp=amp)


class BertModel(nn.Module):
    """BERT-base with a span head."""

    def __init__(self, width: int = 768, layers: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.words = nn.Embedding(BERT_WORDS, width)
        self.places = nn.Parameter(torch.zeros(SQUAD_LENGTH, width))
        self.norm = nn.LayerNorm(width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, activation="gelu", batch_first=True)
        self.core = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.span = nn.Linear(width, 2)

    def forward(self, words: Tensor) -> Tensor:
        return self.span(self.core(self.norm(self.words(words) + self.places)))


def bert_squad(batch: int, amp: bool = False) -> Traceable:
    """Fine-tuning on spans of 384 tokens."""
    model = BertModel()
    words, start, end = (
        torch.randint(BERT_WORDS, (batch, SQUAD_LENGTH)),
        torch.randint(SQUAD_LENGTH, (batch,)),
        torch.randint(SQUAD_LENGTH, (batch,)),
    )
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

    def loss() -> Tensor:
        logits = model(words)
        return functional.cross_entropy(logits[..., 0], start) + functional.cross_entropy(logits[..., 1], end)

    return training(model, loss, optimizer, amp=amp)
