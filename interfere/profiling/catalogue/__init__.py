"""Finds the model behind a name in a public table of measurements, so that it can be traced.

This is the only place where a workload's name matters: it selects an architecture, and only what is computed from the
architecture's operators becomes a feature. A name that is not here has no static profile, and its features stay NaN.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interfere.profiling.static.traceable import Factory, Traceable

_GAVEL = re.compile(r"(?P<model>[\w-]+)(?: \(batch size (?P<batch>\d+)\))?")
_LUCID = re.compile(r"(?P<model>\w+) (?P<data>[\w-]+) bs(?P<batch>\d+) amp(?P<amp>[01])")


def find_factory(name: str) -> "Factory | None":
    """Factory of a published name, "ResNet-50 (batch size 32)" or "ResNet50 ImageNet bs32 amp1"; None if unknown."""
    if match := _LUCID.fullmatch(name):
        model = _lucid_models().get((match["model"], match["data"]))
        return partial(model, int(match["batch"]), match["amp"] == "1") if model else None
    if match := _GAVEL.fullmatch(name):
        if match["batch"] is None:
            return _gavel_models_without_batch().get(match["model"])
        model = _gavel_models().get(match["model"])
        return partial(model, int(match["batch"])) if model else None
    return None


def name_patterns() -> tuple[str, ...]:
    """The names that are known, as people read them: N stands for a batch size."""
    with_batch = (f"{model} (batch size N)" for model in _gavel_models())
    lucid = (f"{model} {data} bsN amp0|1" for model, data in _lucid_models())
    return (*with_batch, *_gavel_models_without_batch(), *lucid)


def _gavel_models() -> "dict[str, Callable[..., Traceable]]":
    """Models of Gavel (Narayanan et al., OSDI 2020) whose job names carry a batch size."""
    from interfere.profiling.catalogue import language, recommendation, vision

    return {
        "ResNet-18": vision.resnet18,
        "ResNet-50": vision.resnet50,
        "Transformer": language.transformer_multi30k,
        "LM": partial(language.lstm_wikitext, clip_norm=0.25),
        "Recommendation": recommendation.autoencoder,
    }


def _gavel_models_without_batch() -> "dict[str, Callable[[], Traceable]]":
    from interfere.profiling.catalogue import image_generation, reinforcement_learning

    return {"A3C": reinforcement_learning.a3c, "CycleGAN": image_generation.cyclegan}


def _lucid_models() -> "dict[tuple[str, str], Callable[..., Traceable]]":
    """Models of Lucid (Hu et al., ASPLOS 2023) by model and data set.

    Its TD3 is left out: a step is as many updates as an episode of the simulator lasted, which is not published.
    """
    from interfere.profiling.catalogue import (
        image_generation,
        language,
        recommendation,
        reinforcement_learning,
        vision,
    )

    return {
        ("BERT", "SQuAD"): language.bert_squad,
        ("DCGAN", "LSUN"): image_generation.dcgan,
        ("EfficientNet", "CIFAR-10"): vision.efficientnet_b0,
        ("LSTM", "Wikitext2"): language.lstm_wikitext,
        ("MobileNetV2", "CIFAR-10"): vision.mobilenet_v2,
        ("MobileNetV3", "ImageNet"): partial(vision.mobilenet_v3, momentum=0.0),
        ("NeuMF", "MovieLens"): recommendation.neumf,
        ("PPO", "LunarLander"): reinforcement_learning.ppo,
        ("ResNet18", "CIFAR-10"): vision.resnet18,
        ("ResNet50", "ImageNet"): partial(vision.resnet50, momentum=0.0),
        ("Transformer", "Multi30k"): partial(language.transformer_multi30k, tied=False),
        ("VGG", "CIFAR-10"): vision.vgg11,
    }
