"""Settings of the server and its clients: one record, parsed once from TOML and `INTERFERE_` variables.

Precedence, low to high: defaults, the TOML file, the environment, the command line. A key nobody knows is an error.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from interfere.errors import InvalidInputError, Violation

PREFIX = "INTERFERE_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting with its help line; also the table that `interfere serve --help` points to."""

    work: Path = field(default=Path("interfere-work"), metadata={"help": "workspace: tables, models, store, runs"})
    model: Path | None = field(
        default=None, metadata={"help": "model folder; default: WORK/models/champion, else the shipped one"}
    )
    store: Path | None = field(default=None, metadata={"help": "SQLite file of the store; default: WORK/store.db"})
    host: str = field(default="127.0.0.1", metadata={"help": "address to listen on"})
    port: int = field(default=50051, metadata={"help": "port to listen on; 0 takes a free one"})
    metrics_port: int | None = field(default=None, metadata={"help": "port of Prometheus /metrics; default: none"})
    time_budget_s: float = field(
        default=2.0, metadata={"help": "search of a decision whose limits name no time budget, seconds"}
    )
    threads: int = field(default=4, metadata={"help": "requests worked on at once"})
    max_concurrent_rpcs: int = field(default=64, metadata={"help": "requests accepted at once; more are refused"})
    message_mib: int = field(default=64, metadata={"help": "largest request and answer, MiB"})
    grace_s: float = field(default=5.0, metadata={"help": "time that running requests get at shutdown, seconds"})
    target: str = field(default="127.0.0.1:50051", metadata={"help": "address that client commands ask"})
    timeout_s: float = field(default=10.0, metadata={"help": "time a client command waits for an answer, seconds"})

    def __post_init__(self) -> None:
        bad = []
        for name, low, high in (
            ("port", 0, 65535),
            ("metrics_port", 0, 65535),
            ("threads", 1, 256),
            ("max_concurrent_rpcs", 1, 100_000),
            ("message_mib", 1, 1024),
            ("grace_s", 0, 3600),
            ("timeout_s", 0.001, 86_400),
            ("time_budget_s", 0.001, 3600),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                remedy = f"a number from {low} to {high}"
                bad.append(Violation(field=name, what="out of range", value=repr(value), remedy=remedy))
        if bad:
            raise InvalidInputError.from_violations(bad)

    @property
    def store_path(self) -> Path:
        """Where the store is."""
        return self.store or self.work / "store.db"

    @property
    def champion_path(self) -> Path:
        """Where training publishes its champion."""
        return self.work / "models" / "champion"


_KINDS: dict[str, Any] = {
    "work": Path,
    "model": Path,
    "store": Path,
    "host": str,
    "port": int,
    "metrics_port": int,
    "threads": int,
    "max_concurrent_rpcs": int,
    "message_mib": int,
    "grace_s": float,
    "target": str,
    "timeout_s": float,
    "time_budget_s": float,
}

# Variables of the same prefix that are no settings: where tests find public data, what a job under measurement carries.
_NOT_SETTINGS = {"INTERFERE_DATA", "INTERFERE_PROGRESS", "INTERFERE_PROGRESS_EVERY_S", "INTERFERE_PROGRESS_RUN"}


def help_lines() -> str:
    """One line a setting: name, default, meaning."""
    return "\n".join(f"{PREFIX}{f.name.upper()} ({f.default}): {f.metadata['help']}" for f in fields(Settings))


def load_settings(file: Path | None = None, *, environ: Mapping[str, str] | None = None, **given: object) -> Settings:
    """Settings of `file`, then of the environment, then `given` (None means not given).

    Raises InvalidInputError naming every unknown key and every value of the wrong kind.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}  # typed one by one below
    bad: list[Violation] = []
    from_environ = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name not in _NOT_SETTINGS
    }
    named = {name: value for name, value in given.items() if value is not None}
    for where, source in ((str(file), _read(file)), ("environment", from_environ), ("options", named)):
        for name, value in source.items():
            path = f"{PREFIX}{name.upper()}" if where == "environment" else f"{where}: {name}"
            if name not in _KINDS:
                near = get_close_matches(name, _KINDS, n=1)
                remedy = f"did you mean {near[0]}?" if near else f"one of {', '.join(_KINDS)}"
                bad.append(Violation(field=path, what="unknown setting", value=repr(value), remedy=remedy))
                continue
            try:
                values[name] = _typed(name, value)
            except (TypeError, ValueError):
                remedy = f"send a {_KINDS[name].__name__}"
                bad.append(Violation(field=path, what="wrong kind of value", value=repr(value), remedy=remedy))
    if bad:
        raise InvalidInputError.from_violations(bad)
    return Settings(**values)


def _typed(name: str, value: object) -> object:
    kind = _KINDS[name]
    if isinstance(value, bool) or (isinstance(value, float) and kind is int):
        raise TypeError(name)
    return kind(value)


def _read(file: Path | None) -> dict[str, object]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(
            f"the settings file cannot be read ({error.strerror})", value=file, remedy="check --config"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"not TOML: {error}", value=file, remedy="write lines like: port = 50051") from None
