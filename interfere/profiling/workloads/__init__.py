"""Finds workloads by name: the built-in ones, and users' own as `module:factory`.

Law: looking up a built-in workload imports neither torch nor numpy; only `build` does.
"""

import importlib
from itertools import combinations_with_replacement

from interfere.errors import InvalidInputError, NotFoundError, remedy_for_name
from interfere.profiling.workloads.workload import BUILT_IN, Pause, Step, Workload, built_in_gang

for _module in ("vision", "language", "training", "arrays"):  # each enters its workloads into BUILT_IN
    importlib.import_module(f"{__name__}.{_module}")
# Gangs: three that are always busy, three that wait for input or output.
for _name in ("resnet-train", "lstm-train", "bert-infer", "resnet-input", "dlrm-train", "vae-train"):
    built_in_gang(_name)

# Subsets for runs of a few minutes; each keeps the variety, from always busy to mostly idle.
EIGHT = (
    *("resnet-train", "resnet-input", "bert-infer", "bert-serve", "gpt-decode"),
    *("stream", "request-server", "rl-rollout"),
)
TWELVE = (*EIGHT, "dlrm-train", "lstm-train", "gemm", "spectrogram")


def expand_names(spec: str) -> tuple[str, ...]:
    """Return the names in a comma-separated list, in which `all`, `eight` and `twelve` stand for sets of workloads.

    Raises InvalidInputError for an empty list.
    """
    sets = {"all": tuple(BUILT_IN), "eight": EIGHT, "twelve": TWELVE}
    entries = [entry.strip() for entry in spec.split(",") if entry.strip()]
    names = tuple(name for entry in entries for name in sets.get(entry, (entry,)))
    if not names:
        raise InvalidInputError("no workload given", value=repr(spec), remedy="name some, or say all")
    return names


def campaign_pairs(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the unordered pairs of these workloads that a campaign measures, self pairs included.

    Most workloads are measured beside all others. A gang, and a service at another rate than its middle one, is
    measured beside those of `EIGHT`, which vary from always busy to mostly idle; a gang also beside every gang.
    """
    found = []
    for first, second in combinations_with_replacement(names, 2):
        one, other = (BUILT_IN.get(name) for name in (first, second))
        partial = [each for each in (one, other) if each is not None and not each.beside_all]
        gangs = all(each.gang_of for each in partial)
        if not partial or (len(partial) == 2 and gangs) or (len(partial) == 1 and {first, second} & set(EIGHT)):
            found.append((first, second))
    return tuple(found)


def needs_torch(name: str) -> bool:
    """Return whether a built-in workload runs torch; False for users' workloads, which import what they need."""
    return name in BUILT_IN and BUILT_IN[name].framework == "torch"


def ranks_of(name: str) -> int:
    """Return the number of devices that a workload runs on: 1 unless it is a built-in gang."""
    return BUILT_IN[name].ranks if name in BUILT_IN else 1


def check_names(workloads: tuple[str, ...]) -> None:
    """Raise InvalidInputError for a duplicate, NotFoundError for a name that is neither built in nor `module:factory`.

    Nothing of the user's is imported.
    """
    if len(set(workloads)) != len(workloads):
        duplicates = sorted({name for name in workloads if workloads.count(name) > 1})
        raise InvalidInputError("a workload is named twice", value=", ".join(duplicates), remedy="name each once")
    for name in workloads:
        if name not in BUILT_IN and ":" not in name:
            raise NotFoundError(
                "no such workload",
                value=name,
                remedy=remedy_for_name(name, BUILT_IN, f"one of {', '.join(BUILT_IN)}, or your own as module:factory"),
            )


def find_workload(name: str) -> Workload:
    """Return the built-in workload of this name, or the user's own, named `module:attribute`.

    The attribute is a Workload or a callable that returns one. Raises NotFoundError for an unknown name and
    InvalidInputError for an attribute that gives no Workload.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    check_names((name,))
    module, _, attribute = name.partition(":")
    factory = getattr(importlib.import_module(module), attribute)
    workload = factory if isinstance(factory, Workload) else factory()
    if not isinstance(workload, Workload):
        raise InvalidInputError(
            f"{name} did not return a Workload",
            value=type(workload).__name__,
            remedy="return interfere.profiling.Workload",
        )
    return workload


__all__ = ["BUILT_IN", "Pause", "Step", "Workload"]  # defined in `workload`; the functions above are public too
