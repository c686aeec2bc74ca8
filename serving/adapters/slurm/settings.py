"""The adapter's settings and its map of devices, from one TOML file and flags that override it.

server = "127.0.0.1:50051"
cluster = "main"

[[devices]]            # the first entry that matches a GPU describes it
nodes = "a*"           # a pattern; without it every node
gres = "g*"            # a pattern; without it every GRES type
type = "a100"          # device type as the model knows it
memory_gib = 80
granule_gib = 5        # jobs are granted memory in units of this; a job that holds more than its grant is ended
"""

import math
import pwd
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from interfere.errors import InvalidInputError, Violation
from interfere.records import NAN
from interfere.records.limits import DEFAULT_GRANT_PATIENCE_S
from interfere.serving.adapters.slurm.records import GpuAddress
from interfere.sharing_modes import DEFAULT_MODE, SharingMode, parse_sharing_mode, unknown_mode

GIB = float(2**30)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRule:
    """A description of the GPUs that match two patterns."""

    type: str
    nodes: str = "*"
    gres: str = "*"
    memory_gib: float = NAN
    mode: SharingMode = SharingMode.TIMESLICE
    granule_gib: float = NAN  # unit of memory grants; without it, and without oversubscription, none are made
    oversubscription_ratio: float = 1.0  # memory that may be granted ÷ memory of the GPU

    @property
    def grants_memory(self) -> bool:
        """Whether jobs on this GPU hold memory grants."""
        return self.granule_gib > 0 or self.oversubscription_ratio > 1

    def fits(self, address: GpuAddress) -> bool:
        """Whether the rule describes this GPU."""
        return fnmatchcase(address.node, self.nodes) and fnmatchcase(address.gres, self.gres)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """All settings of the adapter."""

    devices: tuple[DeviceRule, ...] = ()
    server: str = "127.0.0.1:50051"
    cluster: str = "slurm"  # scope of the decisions and prefix of observation ids
    only_user: str = ""  # advise this user's jobs only, with no more rights than theirs; empty: an operator's
    spool: Path = Path("/var/spool/interfere")
    lock: Path = Path("/run/interfere/slurm.lock")
    metrics: Path | None = None  # a file for the textfile collector of Prometheus' node exporter
    interval_s: float = 2.0  # a round takes 50 ms of slurmctld's time
    window_s: float = 20.0  # deferral: as in job_submit.lua; without advice a job starts this much later
    timeout_s: float = 5.0  # of every Slurm command and of every call of the server
    start_s: float = 60.0  # a placed job that has not started by then has lost its place; sched_interval is 60 s
    most_tries: int = 3  # placements of one job; then Slurm places it
    patience_s: float = 300.0  # a waiting job counts once more each time this has passed, up to eight times
    priority_unit: float = 0.0  # of Slurm's priority, makes one strict level of 0 to 9; 0: all are equal
    most_deferred_s: float = 1800.0  # a job that waited this long is not deferred any more: its priority decides
    lookahead: int = 3  # jobs, in Slurm's order, that compete for one free seat
    report_every_s: float = 60.0  # a longer co-location is reported in parts
    least_window_s: float = 5.0  # shortest time between two marks from which steps are counted
    grant_patience_s: float = DEFAULT_GRANT_PATIENCE_S  # a job that held more than its grant for so long is ended
    allow_extrapolation: bool = False  # predict pairs that are unlike all that the model learned from
    lookback_s: float = 240.0  # less than MinJobAge (300 s): older jobs may be forgotten by Slurm

    @property
    def grants_memory(self) -> bool:
        """Whether any GPU grants memory."""
        return any(rule.grants_memory for rule in self.devices)

    def device(self, address: GpuAddress) -> DeviceRule | None:
        """The description of a GPU; None where no rule matches."""
        return next((rule for rule in self.devices if rule.fits(address)), None)

    @property
    def only_user_id(self) -> int | None:
        """None where all users' jobs are advised. Raises InvalidInputError for a user that does not exist."""
        try:
            return pwd.getpwnam(self.only_user).pw_uid if self.only_user else None
        except KeyError:
            raise InvalidInputError("no such user", value=self.only_user, remedy="check only_user") from None

    def __post_init__(self) -> None:
        bad = [
            Violation(field=name, what="must be a positive number", value=repr(value), remedy="leave it out")
            for name in (
                "interval_s",
                "window_s",
                "timeout_s",
                "start_s",
                "patience_s",
                "most_tries",
                "lookahead",
                "report_every_s",
                "lookback_s",
                "grant_patience_s",
            )
            if not (value := getattr(self, name)) > 0
        ]
        if not self.priority_unit >= 0:
            what, remedy = "must not be negative", "leave it out for one level"
            bad.append(Violation(field="priority_unit", what=what, value=repr(self.priority_unit), remedy=remedy))
        if not bad and self.interval_s > self.window_s / 4:
            bad.append(
                Violation(
                    field="interval_s",
                    what="must be at most a quarter of window_s",
                    value=repr(self.interval_s),
                    remedy="deferred jobs are renewed at half of their window: look more often",
                )
            )
        if not self.devices:
            bad.append(
                Violation(
                    field="devices", what="no GPU is described", value="[]", remedy='add [[devices]] with type = "a100"'
                )
            )
        if bad:
            raise InvalidInputError.from_violations(bad)


_NUMBERS = {f.name: f.type for f in fields(SlurmSettings) if f.type in (float, int)}
_PATHS = ("spool", "lock", "metrics")
_RULE = {"type": str, "nodes": str, "gres": str, "mode": str, "memory_gib": float, "granule_gib": float}
_RULE["oversubscription_ratio"] = float


def load(file: Path, flags: Mapping[str, object]) -> SlurmSettings:
    """Settings of a file, overridden by flags (None: not given). Raises InvalidInputError with every violation."""
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(
            f"the settings file cannot be read ({error.strerror})",
            value=file,
            remedy="name yours with --config; slurm.toml among the adapter's files is one to begin with",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"not TOML: {error}", value=file, remedy='write lines like: cluster = "main"') from None
    bad: list[Violation] = []
    rows = document.pop("devices", [])
    rules = tuple(
        rule
        for k, row in enumerate(rows if isinstance(rows, list) else [rows])
        if (rule := _rule(f"devices[{k}]", row, bad)) is not None
    )
    values: dict[str, object] = {}
    known = [f.name for f in fields(SlurmSettings) if f.name != "devices"]
    for name, value in (document | {k: v for k, v in flags.items() if v is not None}).items():
        if name not in known:
            bad.append(_unknown(str(name), value, known))
        elif name in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float)):
            bad.append(Violation(field=name, what="must be a number", value=repr(value), remedy="drop the quotes"))
        elif name in _NUMBERS:
            values[name] = value
            if _NUMBERS[name] is int and not isinstance(value, int):
                bad.append(Violation(field=name, what="must be a whole number", value=repr(value), remedy="e.g. 3"))
        elif name == "allow_extrapolation":
            values[name] = value
            if not isinstance(value, bool):
                bad.append(Violation(field=name, what="must be true or false", value=repr(value), remedy="no quotes"))
        else:
            values[name] = Path(str(value)) if name in _PATHS else str(value)
    if bad:
        raise InvalidInputError.from_violations(bad)
    return SlurmSettings(devices=rules, **values)  # type: ignore[arg-type]  # typed one by one above


def _rule(path: str, row: object, bad: list[Violation]) -> DeviceRule | None:
    if not isinstance(row, dict) or not row.get("type"):
        bad.append(Violation(field=path, what="needs a type", value=repr(row), remedy='add type = "a100"'))
        return None
    before = len(bad)
    for name, value in row.items():
        if name not in _RULE:
            bad.append(_unknown(f"{path}.{name}", value, list(_RULE)))
        elif _RULE[name] is float and (isinstance(value, bool) or not isinstance(value, int | float)):
            bad.append(Violation(field=f"{path}.{name}", what="must be a number", value=repr(value), remedy="e.g. 80"))
        elif name == "mode" and value not in tuple(SharingMode):
            bad.append(unknown_mode(str(value), f"{path}.mode"))
    if len(bad) > before:
        return None
    rule = DeviceRule(**row | {"mode": parse_sharing_mode(row.get("mode", DEFAULT_MODE))})
    bad += _grant_violations(path, rule)
    return rule if len(bad) == before else None


def _grant_violations(path: str, rule: DeviceRule) -> list[Violation]:
    bad = []
    if rule.grants_memory and not rule.memory_gib > 0:
        what, remedy = "is needed where memory is granted", "add memory_gib = 80"
        bad.append(Violation(field=f"{path}.memory_gib", what=what, value=repr(rule.memory_gib), remedy=remedy))
    if not math.isnan(rule.granule_gib) and not 0 < rule.granule_gib <= rule.memory_gib:
        what, remedy = "must be positive, and at most memory_gib", "a GPU of twelve slots has a twelfth of its memory"
        bad.append(Violation(field=f"{path}.granule_gib", what=what, value=repr(rule.granule_gib), remedy=remedy))
    if not rule.oversubscription_ratio >= 1:
        what, value = "must be at least 1", repr(rule.oversubscription_ratio)
        remedy = "leave it out where no more memory is granted than there is"
        bad.append(Violation(field=f"{path}.oversubscription_ratio", what=what, value=value, remedy=remedy))
    return bad


def _unknown(field: str, value: object, known: list[str]) -> Violation:
    near = get_close_matches(field.rpartition(".")[2], known, n=1)
    remedy = f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}"
    return Violation(field=field, what="unknown setting", value=repr(value), remedy=remedy)
