"""Finds the model behind a name in a public table of measurements, so that it can be traced.

This is the only place where a workload's name matters: it selects an architecture, and only what is computed from the
architecture's operators becomes a feature. A name that is not here has no static profile, and its features stay NaN.
"""

import re
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interfere.profiling.static import Factory

# Models by their published name, in which N stands for a batch size: "module:function" of this package, and what the
# published program sets. First those of Gavel (Narayanan et al., OSDI 2020), then those of Lucid (Hu et al., ASPLOS
# 2023) with their data set. Lucid's TD3 is left out: a step is as many updates as an episode of the simulator lasted,
# which is not published.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "ResNet-18 (batch size N)": ("vision:resnet18", {}),
    "ResNet-50 (batch size N)": ("vision:resnet50", {}),
    "Transformer (batch size N)": ("language:transformer_multi30k", {}),
    "LM (batch size N)": ("language:lstm_wikitext", {"clip_norm": 0.25}),
    "Recommendation (batch size N)": ("recommendation:autoencoder", {}),
    "A3C": ("reinforcement_learning:a3c", {}),
    "CycleGAN": ("image_generation:cyclegan", {}),
    "BERT SQuAD bsN amp0|1": ("language:bert_squad", {}),
    "DCGAN LSUN bsN amp0|1": ("image_generation:dcgan", {}),
    "EfficientNet CIFAR-10 bsN amp0|1": ("vision:efficientnet_b0", {}),
    "LSTM Wikitext2 bsN amp0|1": ("language:lstm_wikitext", {}),
    "MobileNetV2 CIFAR-10 bsN amp0|1": ("vision:mobilenet_v2", {}),
    "MobileNetV3 ImageNet bsN amp0|1": ("vision:mobilenet_v3", {"momentum": 0.0}),
    "NeuMF MovieLens bsN amp0|1": ("recommendation:neumf", {}),
    "PPO LunarLander bsN amp0|1": ("reinforcement_learning:ppo", {}),
    "ResNet18 CIFAR-10 bsN amp0|1": ("vision:resnet18", {}),
    "ResNet50 ImageNet bsN amp0|1": ("vision:resnet50", {"momentum": 0.0}),
    "Transformer Multi30k bsN amp0|1": ("language:transformer_multi30k", {"tied": False}),
    "VGG CIFAR-10 bsN amp0|1": ("vision:vgg11", {}),
}
_SIZE = re.compile(r" \(batch size (?P<batch>\d+)\)$| bs(?P<lucid_batch>\d+) amp(?P<amp>[01])$")


def find_factory(name: str) -> "Factory | None":
    """Return the factory of a published model name; None where the name is unknown.

    Names are such as "ResNet-50 (batch size 32)" or "ResNet50 ImageNet bs32 amp1". The module of the model is imported.
    """
    pattern, sizes = name, tuple[Any, ...]()
    if (match := _SIZE.search(name)) and match["amp"]:
        pattern, sizes = f"{name[: match.start()]} bsN amp0|1", (int(match["lucid_batch"]), match["amp"] == "1")
    elif match:
        pattern, sizes = f"{name[: match.start()]} (batch size N)", (int(match["batch"]),)
    if pattern not in MODELS:
        return None
    place, options = MODELS[pattern]
    module, _, function = place.partition(":")
    return partial(getattr(import_module(f"{__name__}.{module}"), function), *sizes, **options)
