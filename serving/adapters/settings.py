"""Settings of adapters: what all schedulers have in common, and how one TOML file and flags become a record.

A settings record is a dataclass; the types of its fields say what a file may hold.
"""

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args, get_origin

from interfere.errors import InvalidInputError, Violation
from interfere.records import ActionKind, Limits
from interfere.records.limits import DEFAULT_GRANT_PATIENCE_S
from interfere.serving.adapters.windows import WindowRules

GIB = float(2**30)
PATHS = (Path, Path | None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSettings:
    """The settings of every adapter."""

    server: str = "127.0.0.1:50051"
    cluster: str = "cluster"  # scope of the decisions and part of observation ids
    interval_s: float = 2.0  # between two rounds
    window_s: float = 20.0  # without a decision a job is held back for so long
    timeout_s: float = 5.0  # of each call of the scheduler and of the policy server
    start_s: float = 60.0  # a placed job that has not started by then has lost its place
    most_tries: int = 3  # placements of one job; then the scheduler places it
    lookahead: int = 3  # jobs, in the scheduler's order, that compete for one free seat
    patience_s: float = 300.0  # a waiting job counts once more each time this has passed, up to eight times
    priority_unit: float = 0.0  # of the scheduler's priority, makes one strict level of 0 to 9; 0: all are equal
    allow_extrapolation: bool = False  # predict pairs that are unlike all that the model learned from
    report_every_s: float = 60.0  # a longer co-location is reported in parts
    least_window_s: float = 5.0  # shortest time between two marks from which steps are counted
    lookback_s: float = 900.0  # older windows are not reported
    grant_patience_s: float = DEFAULT_GRANT_PATIENCE_S  # a job that held more than its grant for so long is ended
    journal: Path | None = None  # JSON lines of decisions and measurements, which `report` sums up

    POSITIVE: ClassVar[tuple[str, ...]] = (
        "interval_s",
        "window_s",
        "timeout_s",
        "start_s",
        "most_tries",
        "lookahead",
        "patience_s",
        "report_every_s",
        "least_window_s",
        "lookback_s",
        "grant_patience_s",
    )

    def __post_init__(self) -> None:
        bad = [
            Violation(field=name, what="must be a positive number", value=repr(value), remedy="leave it out")
            for name in self.POSITIVE
            if not (value := getattr(self, name)) > 0
        ]
        if not self.priority_unit >= 0:
            what, remedy = "must not be negative", "leave it out for one level"
            bad.append(Violation(field="priority_unit", what=what, value=repr(self.priority_unit), remedy=remedy))
        bad += self.own_violations()
        if not bad and self.interval_s > self.window_s / 4:
            what, remedy = "must be at most a quarter of window_s", "look more often, or hold jobs back for longer"
            bad.append(Violation(field="interval_s", what=what, value=repr(self.interval_s), remedy=remedy))
        if bad:
            raise InvalidInputError.from_violations(bad)

    def own_violations(self) -> Sequence[Violation]:
        """Return the violations of settings that only this scheduler has."""
        return ()

    def limits(self, *more: ActionKind) -> Limits:
        """The limits of every request: jobs start or wait; nothing else but `more` is allowed."""
        return Limits.of(
            allowed=frozenset({ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.WAIT, *more}),
            allow_extrapolation=self.allow_extrapolation,
            ageing_s=self.patience_s,
            grant_patience_s=self.grant_patience_s,
        )

    def window_rules(self, *, settle_s: float, max_company: float = math.inf) -> WindowRules:
        """How windows are cut."""
        return WindowRules(
            report_every_s=self.report_every_s,
            least_window_s=self.least_window_s,
            lookback_s=self.lookback_s,
            settle_s=settle_s,
            max_company=max_company,
        )


S = TypeVar("S", bound=AdapterSettings)


def load(kind: type[S], file: Path | None, flags: Mapping[str, object]) -> S:
    """Settings of a file, overridden by flags (None: not given). Raises InvalidInputError with every violation."""
    document = _document(file) if file is not None else {}
    bad: list[Violation] = []
    values = _typed_values(kind, document | {k: v for k, v in flags.items() if v is not None}, "", bad)
    if bad:
        raise InvalidInputError.from_violations(bad)
    return kind(**values)


def _document(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(
            f"the settings file cannot be read ({error.strerror})",
            value=file,
            remedy="name yours with --config; the adapter's guide shows one to begin with",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"not TOML: {error}", value=file, remedy='write lines like: cluster = "main"') from None


def _typed_values(kind: Any, row: Mapping[str, object], path: str, bad: list[Violation]) -> dict[str, Any]:
    """The values of a record's fields; what is unknown or of another type is added to `bad`."""
    types = {each.name: each.type for each in fields(kind)}
    values = {}
    for name, value in row.items():
        if name not in types:
            near = get_close_matches(name, types, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"one of {', '.join(types)}"
            bad.append(Violation(field=path + name, what="unknown setting", value=repr(value), remedy=remedy))
        else:
            values[name] = _typed(types[name], value, path + name, bad)
    return values


def _typed(kind: Any, value: object, path: str, bad: list[Violation]) -> Any:
    """Return a value converted to the type of its field."""
    if get_origin(kind) is tuple:
        rows = value if isinstance(value, list | tuple) else [value]
        records = [_record(get_args(kind)[0], row, f"{path}[{k}]", bad) for k, row in enumerate(rows)]
        return tuple(record for record in records if record is not None)
    if isinstance(kind, type) and issubclass(kind, StrEnum) and value in list(kind):
        return kind(str(value))
    if what_remedy := _mismatch(kind, value):
        bad.append(Violation(field=path, what=what_remedy[0], value=repr(value), remedy=what_remedy[1]))
        return value
    return Path(str(value)) if kind in PATHS else value


def _mismatch(kind: Any, value: object) -> tuple[str, str] | None:
    """Return how a value differs from the type of its field, with a remedy; None where the type is right."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_enum = isinstance(kind, type) and issubclass(kind, StrEnum)
    is_map = isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    checks = {
        ("must be a number", "drop the quotes"): kind in (float, int) and not is_number,
        ("must be a whole number", "e.g. 3"): kind is int and isinstance(value, float) and value != int(value),
        ("must be true or false", "no quotes"): kind is bool and not isinstance(value, bool),
        (f"unknown {_name(kind)}", f"one of {', '.join(kind if is_enum else ())}"): is_enum,
        ("must map names to names", '"NVIDIA-A100-SXM4-80GB" = "a100"'): get_origin(kind) is Mapping and not is_map,
        ("must be text", "put it in quotes"): kind in (str, *PATHS) and not isinstance(value, str | Path),
    }
    return next((told for told, holds in checks.items() if holds), None)


def _name(kind: Any) -> str:
    """A type's name in words: `SharingMode` is a sharing mode."""
    return re.sub("(?<!^)(?=[A-Z])", " ", str(getattr(kind, "__name__", kind))).lower()


def _record(kind: Any, row: object, path: str, bad: list[Violation]) -> Any:
    """Return one record of a list of tables; None where the entry is not a record."""
    if not isinstance(row, dict):
        bad.append(Violation(field=path, what="must be a table", value=repr(row), remedy="write [[devices]]"))
        return None
    before = len(bad)
    values = _typed_values(kind, row, f"{path}.", bad)
    if len(bad) > before:
        return None
    try:
        return kind(**values)
    except InvalidInputError as error:
        bad += [
            Violation(field=f"{path}.{each.field}", what=each.what, value=each.value, remedy=each.remedy)
            for each in error.violations
        ]
        return None
