"""A study: traces, slowdowns, schedulers and a question, as one record that a TOML file or a few options fill.

Laws: every field changes the answer or is refused, none is silently ignored; an entry of a file that is no field, or of
another type, is refused.
"""

import math
import tomllib
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from interfere.errors import InvalidInputError
from interfere.records.cluster import MAX_SEATS
from interfere.sharing_modes import SharingMode, parse_sharing_mode
from interfere.sim.schedulers.records import SchedulerRecord, record_of
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
    per_node: int | None = None  # with gpus: devices a node
    checkpoint_s: float | None = None  # work that every stop costs a job
    shuffle_ties: bool = False  # jobs of one second come in an order drawn by the seed
    deadlines: str | None = None  # tight, usual, loose, or a file of draws: jobs get deadlines, and the cluster an edge
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
    slice_s: float = 0.0  # sharing is decided at most this often
    # --- conditions
    loads: tuple[float, ...] = ()  # offered: arrivals are stretched to it
    draws: int = 0  # further traces of redrawn days
    tie_draws: int | None = None  # further orders of jobs of one second
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
            ("most_shared_gpus", 1, math.inf),
            ("seats", 2, MAX_SEATS),
            ("caps", 1, math.inf),
            ("draws", 0, math.inf),
            ("tie_draws", 0, math.inf),
            ("pairs", 1, 50),
            ("seed", 0, math.inf),
        )
        for name, low, high in ranges:
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else (value,):
                if number is not None and not low <= number <= high:
                    least = f"{low:g} to {high:g}" if math.isfinite(high) else f"at least {low:g}"
                    raise InvalidInputError(f"{name} of a study is out of range", value=number, remedy=least)
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

    def given(self) -> set[str]:
        """Return the names of the fields whose values differ from their defaults."""
        return {each.name for each in fields(self) if getattr(self, each.name) != each.default}


def require_acting(
    study: Study, needs: Sequence[tuple[str, bool, bool, str]], other_fields: Mapping[str, str] | None = None
) -> None:
    """Refuse a field that would change nothing. Raises InvalidInputError.

    `needs` holds for each field its name, whether it is given, whether it has an effect, and what it requires.
    `other_fields`: fields of other questions, and what they require.
    """
    given = study.given()
    others = [(name, name in given, False, need) for name, need in (other_fields or {}).items()]
    for name, is_given, acts, need in (*needs, *others):
        if is_given and not acts:
            names = ", ".join(record.label for record in study.schedulers)
            raise InvalidInputError(
                f"{name} would change nothing: it needs {need}",
                value=f"schedulers {names}" if names else "the default schedulers",
                remedy="leave it out, or give what it needs",
            )


def study_facts(study: Study) -> dict[str, Any]:
    """All fields of a study as JSON values; the schedulers by their names."""
    values = {each.name: getattr(study, each.name) for each in fields(study)}
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
    return plain | {"schedulers": [record.label for record in study.schedulers]}


# --- files and options ------------------------------------------------------------------------------------------------


def read_study(path: Path) -> dict[str, object]:
    """Return the entries of a study's TOML file. Relative paths are resolved against the folder of the file.

    Raises InvalidInputError for a file that cannot be read.
    """
    try:
        entries: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInputError("not a study", value=f"{path}: {error}", remedy="give a TOML file in UTF-8") from None
    for name in ("trace", "name_map", "table", "model", "deadlines"):
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
    """The study with these entries. Raises InvalidInputError for one that is no field, or of another type."""
    hints = get_type_hints(Study)
    if unknown := [name for name in entries if name not in hints]:
        raise InvalidInputError("no such field of a study", value=unknown[0], remedy=f"one of {', '.join(hints)}")
    if "trace" not in entries:
        raise InvalidInputError("a study needs a trace", value="none", remedy="trace = FOLDER")
    return Study(**{name: _value(name, entry, hints[name]) for name, entry in entries.items()})


def _value(name: str, entry: object, kind: Any) -> Any:
    """An entry as a value of the field's type; one number stands for a list of one."""
    if isinstance(kind, types.UnionType):
        kind = next(each for each in get_args(kind) if each is not types.NoneType)
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        entries = entry if isinstance(entry, list | tuple) else [entry]
        return tuple(dict.fromkeys(_value(name, each, item) for each in entries))
    if kind is SchedulerRecord:
        return entry if isinstance(entry, SchedulerRecord) else record_of(entry)
    if kind is SharingMode and isinstance(entry, str):
        return parse_sharing_mode(entry)
    if kind is float and type(entry) is int:
        return float(entry)
    if kind is Path and isinstance(entry, str | Path):
        return Path(entry)
    if type(entry) is not kind:
        raise InvalidInputError(
            f"{name} of a study is of another type", value=f"{entry!r}", remedy=f"give a {kind.__name__}"
        )
    return entry


def with_sources(study: Study, work: Path) -> Study:
    """The study with its table found by name: a folder, or a table of the workspace or shipped.

    Raises NotFoundError that lists the tables there are.
    """
    from interfere.data.loading import table_folder

    return study if study.table is None else replace(study, table=table_folder(study.table, work))
