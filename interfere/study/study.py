"""A study: traces, slowdowns, schedulers and a question, as one record that a TOML file or a few options fill.

Laws: every field changes the answer or is refused, none is silently ignored; an entry of a file that is no field, or of
another type, is refused.
"""

import math
import tomllib
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from interfere.data.traces import VirtualCluster
from interfere.errors import InvalidInputError
from interfere.records.cluster import MAX_SEATS
from interfere.sharing_modes import SharingMode, parse_sharing_mode
from interfere.sim.schedulers.records import SchedulerRecord, preset
from interfere.sim.truth import UNKNOWN_ALONE, UNKNOWN_MEDIAN, UNKNOWN_WORST

TIRESIAS_CHECKPOINT_S = 62.0  # the mean that Tiresias measured (Gu et al., NSDI 2019)
HIDDEN_SHARE = 0.3
NODE_GPUS = 8
COUNTED_CAP = 1.5  # slowdown past which jobs are counted where no cap is set
PREDICTIONS = ("truth", "model", "mean")
UNKNOWN = (UNKNOWN_ALONE, UNKNOWN_MEDIAN, UNKNOWN_WORST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A question and the trace that it is about. A field that is None or an empty tuple takes the question's
    default."""

    question: str = "replay"  # replay, whatif, or package:Class of a question of one's own
    # --- the trace and its devices
    trace: Path
    name_map: Path | None = None  # CSV `pattern,workload`: the table's names for the trace's
    gpus: int | None = None  # devices, for a trace that does not say
    gpus_by_type: tuple[str, ...] = ()  # instead, type=number for each of several device types
    per_node: int | None = None  # with gpus: devices a node
    checkpoint_s: float | None = None  # work that every stop costs a job
    turnover_s: float = 0.0  # a place stays empty for so long before each job
    deadlines: str | None = None  # tight, usual or loose: jobs get deadlines, and the cluster an edge
    added: bool = False  # with deadlines: the edge is half as many nodes more, not half of them
    taken: bool = False  # with deadlines: edge nodes are taken back at random, at five minutes' notice
    # --- slowdowns, and what schedulers believe of them
    table: Path | None = None  # measured pairs; or
    model: Path | None = None  # predicted ones: a model folder, or the name of a shipped model
    device_type: str = ""  # where there are several
    mode: SharingMode | None = None
    fill: bool = False  # a model stands in for pairs that the table lacks
    unknown: str = UNKNOWN_ALONE  # workloads that the table lacks run alone, or share as the median or worst pair
    predict: str = "truth"  # what sharing is decided by: truth, a model, or the mean of all pairs
    hide: float | None = None  # with a model: share of the pairs that it never saw
    error: float = 0.0  # with the truth: standard error of log slowdown put on it
    online: bool = False  # predictions are corrected by what the replayed jobs measured so far
    duration_error: float = 0.0  # standard error of the logarithm of the run times that schedulers are told
    # --- schedulers
    schedulers: tuple[SchedulerRecord, ...] = ()
    seats: tuple[int, ...] = ()  # jobs that may share a device, of schedulers that form such groups
    caps: tuple[float, ...] = ()  # largest predicted slowdown of jobs that share
    most_shared_gpus: int | None = None  # jobs on more devices never share
    guest_may_stay: bool | None = None  # may a job join one that is expected to end before it?
    whole_nodes: bool | None = None  # jobs wait for as few nodes as they can do with
    slice_s: float = 0.0  # running jobs are re-paired at most this often
    round_s: float = 0.0  # decisions are made at whole multiples of it; 0: at every event
    limit_unit_s: float = 0.0  # schedulers are told time limits in whole units (Slurm: 60); 0: run times
    # --- conditions
    loads: tuple[float, ...] = ()  # offered: arrivals are stretched to it
    draws: int = 0  # further traces of redrawn days
    pairs: int | None = None  # to measure, that are named
    seed: int = 0  # of everything that is drawn

    def __post_init__(self) -> None:
        ranges: tuple[tuple[str, float, float], ...] = (
            ("gpus", 1, math.inf),
            ("per_node", 1, math.inf),
            ("checkpoint_s", 0, math.inf),
            ("error", 0, math.inf),
            ("duration_error", 0, 2),
            ("slice_s", 0, math.inf),
            ("round_s", 0, math.inf),
            ("limit_unit_s", 0, math.inf),
            ("turnover_s", 0, math.inf),
            ("most_shared_gpus", 1, math.inf),
            ("seats", 2, MAX_SEATS),
            ("caps", 1, math.inf),
            ("draws", 0, math.inf),
            ("pairs", 1, 50),
            ("seed", 0, math.inf),
        )
        for name, low, high in ranges:
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else (value,):
                if number is not None and not low <= number <= high:
                    least = f"{low:g} to {high:g}" if math.isfinite(high) else f"at least {low:g}"
                    raise InvalidInputError(f"{name} of a study is out of range", value=number, remedy=least)
        if self.gpus is not None and self.gpus_by_type:
            raise InvalidInputError(
                "devices are given twice", value=f"gpus {self.gpus}", remedy="gpus, or gpus_by_type"
            )
        for name, choices in (("predict", PREDICTIONS), ("unknown", UNKNOWN)):
            if getattr(self, name) not in choices:
                raise InvalidInputError(
                    f"no such {name} of a study", value=getattr(self, name), remedy=f"one of {', '.join(choices)}"
                )
        if (self.table is None) == (self.model is None):
            raise InvalidInputError(
                "slowdowns come from one source",
                value="no table and no model" if self.table is None else f"table {self.table}, model {self.model}",
                remedy="give --data with measured pairs, or --model with a model folder (cpu and gpu are shipped)",
            )
        for name, is_given in (
            ("unknown", self.unknown != UNKNOWN_ALONE),
            ("fill", self.fill),
            ("predict", self.predict == "model"),
        ):
            if is_given and self.table is None:
                raise InvalidInputError(
                    f"{name} needs measured pairs", value=getattr(self, name), remedy="give a table, not a model"
                )

    def facts(self) -> dict[str, Any]:
        """Return all fields by name, with schedulers by their labels."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return values | {"schedulers": [record.label for record in self.schedulers]}

    def given(self) -> set[str]:
        """Return the names of the fields whose values differ from their defaults."""
        return {each.name for each in fields(self) if getattr(self, each.name) != each.default}


def require_acting(study: Study, needs: Sequence[tuple[str, bool, str]]) -> None:
    """Refuse a field that is given and would change nothing. Raises InvalidInputError.

    `needs` holds for each field its name, whether it has an effect, and what it requires.
    """
    given = study.given()
    for name, acts, need in needs:
        if name in given and not acts:
            names = ", ".join(record.label for record in study.schedulers)
            raise InvalidInputError(
                f"{name} would change nothing: it needs {need}",
                value=f"schedulers {names}" if names else "the default schedulers",
                remedy="leave it out, or give what it needs",
            )


def given_clusters(study: Study) -> tuple[VirtualCluster, ...]:
    """Return the virtual cluster of the devices that a study names, one record a device type; none where it names none.

    Raises InvalidInputError where the devices do not fill whole nodes.
    """
    if study.gpus is None and not study.gpus_by_type:
        return ()
    given = [("", study.gpus)] if study.gpus is not None else [_type_and_number(text) for text in study.gpus_by_type]
    clusters = []
    for kind, gpus in given:
        per_node = min(study.per_node or NODE_GPUS, gpus)
        if gpus % per_node:
            raise InvalidInputError(
                "devices do not fill their nodes", value=f"gpus {gpus}, per_node {per_node}", remedy="give a multiple"
            )
        clusters.append(VirtualCluster(vc="all", nodes=gpus // per_node, gpus_per_node=per_node, device_type=kind))
    return tuple(clusters)


def _type_and_number(text: str) -> tuple[str, int]:
    kind, _, number = text.rpartition("=")
    if not kind.strip() or not number.strip().isdecimal() or not int(number):
        raise InvalidInputError(
            "devices of a type are TYPE=NUMBER", value=text, remedy="for example --gpus v100=48,p100=16"
        )
    return kind.strip(), int(number)


# --- files and options ------------------------------------------------------------------------------------------------


def read_study(path: Path) -> dict[str, object]:
    """Return the entries of a study's TOML file. Relative paths are resolved against the folder of the file.

    Raises InvalidInputError for a file that cannot be read.
    """
    try:
        entries: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInputError("not a study", value=f"{path}: {error}", remedy="give a TOML file in UTF-8") from None
    for name in ("trace", "name_map", "table", "model"):
        value = entries.get(name)
        if isinstance(value, str) and (path.parent / value).exists():
            entries[name] = str(path.parent / value)
    return entries


def parse_setting(text: str) -> tuple[str, object]:
    """Return the field and the value of a text `field=value`. The value is read as TOML, or else as plain text."""
    name, sign, value = text.partition("=")
    if not sign:
        raise InvalidInputError("not a setting", value=text, remedy="field=value, for example hide=0.5")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value.strip()


def study_of(entries: Mapping[str, object]) -> Study:
    """Return the study with these entries. Raises InvalidInputError for an unknown field or a value of another type."""
    if "trace" not in entries:
        raise InvalidInputError("a study needs a trace", value="none", remedy="trace = FOLDER")
    return Study(**_values("study", Study, entries))


def _values(owner: str, record: type[Any], entries: Mapping[str, object]) -> dict[str, Any]:
    """Return the entries of a table as values of a record's fields. `owner`: what messages call the record."""
    hints = get_type_hints(record)
    if unknown := [name for name in entries if name not in hints]:
        raise InvalidInputError(f"no such field of a {owner}", value=unknown[0], remedy=f"one of {', '.join(hints)}")
    return {name: _value(f"{name} of a {owner}", entry, hints[name]) for name, entry in entries.items()}


def _value(name: str, entry: object, kind: Any) -> Any:
    """Return an entry as a value of the field's type; one number stands for a list of one."""
    if isinstance(kind, types.UnionType):
        kind = next(each for each in get_args(kind) if each is not types.NoneType)
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        entries = entry if isinstance(entry, list | tuple) else [entry]
        return tuple(dict.fromkeys(_value(name, each, item) for each in entries))
    if kind is SchedulerRecord:
        return entry if isinstance(entry, SchedulerRecord) else scheduler_of(entry)
    if kind is SharingMode and isinstance(entry, str):
        entry = parse_sharing_mode(entry)
    elif isinstance(kind, type) and issubclass(kind, StrEnum) and isinstance(entry, str):
        if entry not in list(kind):
            choices = ", ".join(member.value or '""' for member in kind)
            raise InvalidInputError(f"no such {name}", value=entry, remedy=f"one of {choices}")
        entry = kind(entry)
    elif kind is float and type(entry) is int:
        entry = float(entry)
    elif kind is Path and isinstance(entry, str | Path):
        return Path(entry)
    if type(entry) is not kind:
        raise InvalidInputError(f"{name} is of another type", value=f"{entry!r}", remedy=f"give a {kind.__name__}")
    return entry


def scheduler_of(entry: object) -> SchedulerRecord:
    """Return the scheduler that an entry of a study means: a preset's name, or a table of fields.

    Raises InvalidInputError for anything else.
    """
    if isinstance(entry, str):
        return preset(entry)
    if not isinstance(entry, Mapping) or "queue" not in entry:
        raise InvalidInputError(
            "a scheduler is the name of a preset or a table with a queue", value=entry, remedy='such as "fifo-easy"'
        )
    return SchedulerRecord(**_values("scheduler", SchedulerRecord, entry))


def with_sources(study: Study, work: Path) -> Study:
    """Return the study with the folder of its measurement table in place of the table's name.

    A name is looked up in the workspace and among the shipped tables. Raises NotFoundError, which lists the tables.
    """
    from interfere.data.loading import table_folder

    return study if study.table is None else replace(study, table=table_folder(study.table, work))
