"""The built-in workloads, by name, and users' own as `module:factory`.

Law: looking a built-in up imports neither torch nor numpy; only `build` does.
"""

import importlib

from interfere.errors import InvalidInputError, NotFoundError
from interfere.profiling.workloads import arrays, language, training, vision
from interfere.profiling.workloads.workload import Pause, Step, Workload

BUILT_IN = {w.name: w for w in (*vision.WORKLOADS, *language.WORKLOADS, *training.WORKLOADS, *arrays.WORKLOADS)}

# Subsets that keep the variety, from always busy to mostly idle: what a run of a few minutes measures.
EIGHT = (
    "resnet-train",
    "resnet-input",
    "bert-infer",
    "bert-serve",
    "gpt-decode",
    "stream",
    "request-server",
    "rl-rollout",
)
TWELVE = (*EIGHT, "dlrm-train", "lstm-train", "gemm", "spectrogram")


def names(spec: str) -> tuple[str, ...]:
    """Names of a comma-separated list; `all`, `eight` and `twelve` stand for their sets."""
    sets = {"all": tuple(BUILT_IN), "eight": EIGHT, "twelve": TWELVE}
    parts = [part.strip() for part in spec.split(",") if part.strip()]
    found = tuple(name for part in parts for name in sets.get(part, (part,)))
    if not found:
        raise InvalidInputError("no workload given", value=repr(spec), remedy="name some, or say all")
    return found


def needs_torch(name: str) -> bool:
    """Whether this built-in runs torch; users' own import what they need."""
    return name in BUILT_IN and BUILT_IN[name].framework == "torch"


def check_names(workloads: tuple[str, ...]) -> None:
    """Refuse duplicates and names that are neither built in nor `module:factory`; imports nothing of the user's."""
    if len(set(workloads)) != len(workloads):
        twice = sorted({name for name in workloads if workloads.count(name) > 1})
        raise InvalidInputError("a workload is named twice", value=", ".join(twice), remedy="name each once")
    for name in workloads:
        if name not in BUILT_IN and ":" not in name:
            raise NotFoundError(
                "no such workload",
                value=name,
                remedy=f"one of {', '.join(BUILT_IN)}, or your own as module:factory",
            )


def find(name: str) -> Workload:
    """The built-in, or what the user's `module:factory` gives: a Workload, or a callable that returns one."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    check_names((name,))
    module, _, attribute = name.partition(":")
    made = getattr(importlib.import_module(module), attribute)
    workload = made if isinstance(made, Workload) else made()
    if not isinstance(workload, Workload):
        raise InvalidInputError(
            f"{name} gave no Workload", value=type(workload).__name__, remedy="return interfere.profiling.Workload"
        )
    return workload


__all__ = ["BUILT_IN", "EIGHT", "TWELVE", "Pause", "Step", "Workload", "check_names", "find", "names", "needs_torch"]
