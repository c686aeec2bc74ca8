"""Finds the model behind a name in a public table of measurements, so that it can be traced.

This is the only place where a workload's name matters: it selects an architecture, and only what is computed from the
architecture's operators becomes a feature. A name that is not here has no static profile, and its features stay NaN.
"""

import re
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interfere.profiling.static.traceable import Factory

_GAVEL = re.compile(r"(?P<model>[\w-]+)(?: \(batch size (?P<batch>\d+)\))?")
_LUCID = re.compile(r"(?P<model>\w+) (?P<data>[\w-]+) bs(?P<batch>\d+) amp(?P<amp>[01])")
Architecture = tuple[str, dict[str, Any]]  # "module:function" of this package, and what the published program sets
# Models of Gavel (Narayanan et al., OSDI 2020) whose job names carry a batch size.
GAVEL_MODELS: dict[str, Architecture] = {
    "ResNet-18": ("vision:resnet18", {}),
    "ResNet-50": ("vision:resnet50", {}),
    "Transformer": ("language:transformer_multi30k", {}),
    "LM": ("language:lstm_wikitext", {"clip_norm": 0.25}),
    "Recommendation": ("recommendation:autoencoder", {}),
}
GAVEL_MODELS_WITHOUT_BATCH: dict[str, Architecture] = {
    "A3C": ("reinforcement_learning:a3c", {}),
    "CycleGAN": ("image_generation:cyclegan", {}),
}
# Models of Lucid (Hu et al., ASPLOS 2023) by model and data set. Its TD3 is left out: a step is as many updates as an
# episode of the simulator lasted, which is not published.
LUCID_MODELS: dict[tuple[str, str], Architecture] = {
    ("BERT", "SQuAD"): ("language:bert_squad", {}),
    ("DCGAN", "LSUN"): ("image_generation:dcgan", {}),
    ("EfficientNet", "CIFAR-10"): ("vision:efficientnet_b0", {}),
    ("LSTM", "Wikitext2"): ("language:lstm_wikitext", {}),
    ("MobileNetV2", "CIFAR-10"): ("vision:mobilenet_v2", {}),
    ("MobileNetV3", "ImageNet"): ("vision:mobilenet_v3", {"momentum": 0.0}),
    ("NeuMF", "MovieLens"): ("recommendation:neumf", {}),
    ("PPO", "LunarLander"): ("reinforcement_learning:ppo", {}),
    ("ResNet18", "CIFAR-10"): ("vision:resnet18", {}),
    ("ResNet50", "ImageNet"): ("vision:resnet50", {"momentum": 0.0}),
    ("Transformer", "Multi30k"): ("language:transformer_multi30k", {"tied": False}),
    ("VGG", "CIFAR-10"): ("vision:vgg11", {}),
}


def find_factory(name: str) -> "Factory | None":
    """Return the factory of a published model name; None where the name is unknown.

    Names are such as "ResNet-50 (batch size 32)" or "ResNet50 ImageNet bs32 amp1".
    """
    if match := _LUCID.fullmatch(name):
        return _factory(LUCID_MODELS.get((match["model"], match["data"])), int(match["batch"]), match["amp"] == "1")
    if match := _GAVEL.fullmatch(name):
        if match["batch"] is None:
            return _factory(GAVEL_MODELS_WITHOUT_BATCH.get(match["model"]))
        return _factory(GAVEL_MODELS.get(match["model"]), int(match["batch"]))
    return None


def _factory(architecture: Architecture | None, *sizes: Any) -> "Factory | None":
    """Return a factory that calls an architecture's function with `sizes` and options; the function's module is
    imported."""
    if architecture is None:
        return None
    module, _, function = architecture[0].partition(":")
    return partial(getattr(import_module(f"{__name__}.{module}"), function), *sizes, **architecture[1])


def name_patterns() -> tuple[str, ...]:
    """Return the patterns of all known model names, in which N stands for a batch size."""
    with_batch = (f"{model} (batch size N)" for model in GAVEL_MODELS)
    lucid = (f"{model} {data} bsN amp0|1" for model, data in LUCID_MODELS)
    return (*with_batch, *GAVEL_MODELS_WITHOUT_BATCH, *lucid)
