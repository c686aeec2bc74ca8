"""Models that can be traced by the name under which a public table lists them.

It is the one place where a name may matter: it finds an architecture, and only what is computed from its operators
becomes a feature. A name that is not here has no static profile, and its features stay NaN.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interfere.profiling.static.traceable import Factory, Traceable

_GAVEL = re.compile(r"(?P<model>[\w-]+)(?: \(batch size (?P<batch>\d+)\))?")
_LUCID = re.compile(r"(?P<model>\w+) (?P<data>[\w-]+) bs(?P<batch>\d+) amp(?P<amp>[01])")


def find(name: str) -> "Factory | None":
    """Factory of a published name, "ResNet-50 (batch size 32)" or "ResNet50 ImageNet bs32 amp1"; None if unknown."""
    if match := _LUCID.fullmatch(name):
        maker = _lucid().get((match["model"], match["data"]))
        return partial(maker, int(match["batch"]), match["amp"] == "1") if maker else None
    if match := _GAVEL.fullmatch(name):
        if match["batch"] is None:
            return _gavel_alone().get(match["model"])
        maker = _gavel().get(match["model"])
        return partial(maker, int(match["batch"])) if maker else None
    return None


def names() -> tuple[str, ...]:
    """The forms of names that are known, for a person."""
    sized = (f"{model} (batch size N)" for model in _gavel())
    return (*sized, *_gavel_alone(), *(f"{model} {data} bsN amp0|1" for model, data in _lucid()))


def _gavel() -> "dict[str, Callable[..., Traceable]]":
    """Job names of Gavel (Narayanan et al., OSDI 2020) that carry a batch size."""
    from interfere.profiling.catalogue import language, others, vision

    return {
        "ResNet-18": vision.resnet18,
        "ResNet-50": vision.resnet50,
        "Transformer": language.transformer_multi30k,
        "LM": partial(language.lstm_wikitext, clip_norm=0.25),
        "Recommendation": others.autoencoder,
    }


def _gavel_alone() -> "dict[str, Callable[[], Traceable]]":
    from interfere.profiling.catalogue import games, others

    return {"A3C": games.a3c, "CycleGAN": others.cyclegan}


def _lucid() -> "dict[tuple[str, str], Callable[..., Traceable]]":
    """(model, dataset) of Lucid (Hu et al., ASPLOS 2023).

    Not its TD3: a step is as many updates as an episode of the simulator lasted, which nobody wrote down.
    """
    from interfere.profiling.catalogue import games, language, others, vision

    return {
        ("BERT", "SQuAD"): language.bert_squad,
        ("DCGAN", "LSUN"): others.dcgan,
        ("EfficientNet", "CIFAR-10"): vision.efficientnet_b0,
        ("LSTM", "Wikitext2"): language.lstm_wikitext,
        ("MobileNetV2", "CIFAR-10"): vision.mobilenet_v2,
        ("MobileNetV3", "ImageNet"): partial(vision.mobilenet_v3, momentum=0.0),
        ("NeuMF", "MovieLens"): others.neumf,
        ("PPO", "LunarLander"): games.ppo,
        ("ResNet18", "CIFAR-10"): vision.resnet18,
        ("ResNet50", "ImageNet"): partial(vision.resnet50, momentum=0.0),
        ("Transformer", "Multi30k"): partial(language.transformer_multi30k, tied=False),
        ("VGG", "CIFAR-10"): vision.vgg11,
    }
