"""Sharing modes: how the jobs of one device share it, with the properties of each mode.

A new mode is one member of `SharingMode` with its properties, and one value of `SharingMode` in `policy.proto`. No
other code lists the modes; code that treats some modes differently asks for a property.

Law: a mode is a string, so tables, stored rows and JSON documents contain its word.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self

from interfere.errors import InvalidInputError, Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingProperties:
    """The properties of a sharing mode that other code may ask for.

    `cpu_cores` is the number of CPU cores on which the jobs of a pair are measured: 1 where both jobs share a core, 2
    where each job has its own core, 0 where CPU cores cannot show the mode. `cpu_setting` names that measurement in a
    few words, and `cpu_note` describes it on a dataset card; the first sentence of the note is printed apart.
    """

    description: str
    on_every_gpu: bool = False  # every GPU of the catalogue can have it
    partitions_device: bool = False  # each job has a slice of its own, on GPUs that have slices; else memory is shared
    is_default: bool = False  # what a device does where nothing is set up
    orders_jobs: bool = False  # the first job of a group is the important one: (a, b) and (b, a) are two groups
    cpu_cores: int = 0
    cpu_setting: str = ""
    cpu_note: str = ""
    has_model_column: bool = False  # the encoding has a column for it; models trained before a mode existed have none


class SharingMode(StrEnum):
    """How the jobs of one device share it."""

    properties: SharingProperties

    def __new__(cls, word: str, properties: SharingProperties) -> Self:
        """Make the member that equals `word`."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.properties = properties
        return member

    def __repr__(self) -> str:
        """Return the word in quotes: a record prints as it may be written."""
        return repr(self.value)

    TIMESLICE = (
        "timeslice",
        SharingProperties(
            description="the driver switches between processes",
            on_every_gpu=True,
            is_default=True,
            cpu_cores=1,
            cpu_setting="one CPU core, time-sliced",
            cpu_note="One CPU core, time-sliced. Two processes pinned to the same core share it as two contexts "
            "share a GPU in time slices. It is not a GPU: no memory capacity, no SMs, another scheduler. Good for "
            "trying things out.",
            has_model_column=True,
        ),
    )
    MPS = (
        "mps",
        SharingProperties(
            description="kernels of several processes run at once under NVIDIA Multi-Process Service",
            on_every_gpu=True,
            has_model_column=True,
        ),
    )
    MIG = (
        "mig",
        SharingProperties(
            description="each job has a hardware slice of its own (NVIDIA MIG)",
            partitions_device=True,
            has_model_column=True,
        ),
    )
    STREAM = (
        "stream",
        SharingProperties(description="streams of one process", on_every_gpu=True, has_model_column=True),
    )
    PRIORITY = (
        "priority",
        SharingProperties(
            description="kernels of one job fill the gaps of a more important one",
            on_every_gpu=True,
            orders_jobs=True,
            cpu_cores=1,
            cpu_setting="one CPU core, the first job of a pair at higher priority",
            cpu_note="One CPU core, two priorities. Of two processes pinned to the same core one runs under "
            "SCHED_IDLE: it has the core only while the other, the important one, wants nothing. Each row says who "
            "was important; models and replays, which are not told, take the mean of both roles, with an interval "
            "that covers them.",
            has_model_column=True,
        ),
    )
    SPATIAL = (
        "spatial",
        SharingProperties(
            description="each job has processors of its own; caches and memory bandwidth are shared",
            cpu_cores=2,
            cpu_setting="two CPU cores, a job on each",
            cpu_note="Two CPU cores, a job on each. The jobs share caches and memory bandwidth alone. It is not "
            "MPS: no SMs are shared, and most pairs hardly slow each other down.",
        ),
    )


OptionalSharingMode = SharingMode | Literal[""]
"""A sharing mode, or the empty text where none is named: protobuf's SHARING_MODE_UNSPECIFIED."""
DEFAULT_MODE = next(mode for mode in SharingMode if mode.properties.is_default)
CPU_MODES = tuple(mode for mode in SharingMode if mode.properties.cpu_cores)  # that CPU cores can show
MODE_WORDS = ", ".join(SharingMode)  # for remedies and help
_MODES_BY_WORD = {mode.value: mode for mode in SharingMode}


def parse_sharing_mode(word: str, field: str = "mode") -> SharingMode:
    """Return the sharing mode that `word` spells. Raises InvalidInputError, with the words that are allowed."""
    mode = _MODES_BY_WORD.get(word)
    if mode is None:
        raise InvalidInputError.from_violations([unknown_mode(word, field)])
    return mode


def unknown_mode(word: str, field: str = "mode") -> Violation:
    """Return the violation of a word that spells no sharing mode."""
    return Violation(field=field, what="unknown sharing mode", value=repr(str(word)), remedy=f"one of {MODE_WORDS}")


def set_sharing_mode(record: object, field: str = "mode") -> list[Violation]:
    """Replace the word in a field of a record under construction by its `SharingMode`. Returns a violation where the
    word spells no mode.

    Callers of the library may therefore write `mode="mps"`, while readers of the record find a `SharingMode` with its
    properties.
    """
    word: str = getattr(record, field)
    if isinstance(word, SharingMode):
        return []
    mode = _MODES_BY_WORD.get(word)
    if mode is None:
        return [unknown_mode(word, field)]
    object.__setattr__(record, field, mode)
    return []


def known_modes(words: frozenset[SharingMode], field: str) -> tuple[frozenset[SharingMode], list[Violation]]:
    """Return the sharing modes that `words` spell, and a violation of each word that spells none."""
    unknown = [unknown_mode(word, field) for word in sorted(words) if word not in _MODES_BY_WORD]
    return frozenset(_MODES_BY_WORD[word] for word in words if word in _MODES_BY_WORD), unknown
