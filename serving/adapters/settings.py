"""Settings of adapters: the settings common to all schedulers, and how one TOML file and flags become a record.

The types of the fields of a settings record determine the values that a file may hold (`interfere.records.documents`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from interfere.config import read_toml
from interfere.errors import Violation
from interfere.records import NAN, ActionKind, Limits
from interfere.records.checks import check, refused
from interfere.records.documents import from_document
from interfere.records.limits import (
    DEFAULT_GRANT_PATIENCE_S,
    DEFAULT_PROBE_CAP,
    DEFAULT_PROBE_RISK,
    DEFAULT_PROMISE_TTL_S,
)
from interfere.records.record import fields_of
from interfere.serving.adapters.windows import WindowRules
from interfere.sharing_modes import SharingMode, set_sharing_mode

GIB = float(2**30)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDeviceFacts:
    """What settings say of a device that jobs share: its type, mode and memory, and how memory is granted."""

    type: str = ""
    mode: SharingMode = SharingMode.TIMESLICE
    memory_gib: float = NAN
    granule_gib: float = NAN  # unit of memory grants; without it, and without oversubscription, none are made
    oversubscription_ratio: float = 1.0  # memory that may be granted ÷ memory of the device

    ALWAYS_GRANTS: ClassVar[bool] = False

    def __post_init__(self) -> None:
        bad = list(set_sharing_mode(self, "mode"))
        if not self.type:
            bad.append(refused(self, "type", "needs a type", 'add type = "a100"'))
        if self.grants_memory and not self.memory_gib > 0:
            bad.append(refused(self, "memory_gib", "is needed where memory is granted", "add memory_gib = 80"))
        if not math.isnan(self.granule_gib) and not 0 < self.granule_gib <= self.memory_gib:
            remedy = "a GPU of twelve slots has a twelfth of its memory"
            bad.append(refused(self, "granule_gib", "must be positive, and at most memory_gib", remedy))
        if not self.oversubscription_ratio >= 1:
            remedy = "leave it out where no more memory is granted than there is"
            bad.append(refused(self, "oversubscription_ratio", "must be at least 1", remedy))
        check(bad)

    @property
    def grants_memory(self) -> bool:
        """Whether jobs on this device hold memory grants."""
        return self.ALWAYS_GRANTS or self.granule_gib > 0 or self.oversubscription_ratio > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSettings:
    """The settings that all adapters share."""

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
    probe_devices: int = 0  # on which a job that would wait may start for what the run teaches about its pair
    probe_cap: float = DEFAULT_PROBE_CAP  # on the slowdowns of such a pair, as far as they can be extrapolated
    probe_risk: float = DEFAULT_PROBE_RISK  # with which one of them may pass the cap, at most .5
    report_every_s: float = 60.0  # a longer co-location is reported in parts
    least_window_s: float = 5.0  # shortest time between two marks from which steps are counted
    lookback_s: float = 900.0  # older windows are not reported
    grant_patience_s: float = DEFAULT_GRANT_PATIENCE_S  # a job that held more than its grant for so long is ended
    journal: Path | None = None  # JSON lines of decisions and measurements, which `report` sums up

    MAY_BE_ZERO: ClassVar[tuple[str, ...]] = ("priority_unit", "probe_devices")  # every other number must be positive

    def __post_init__(self) -> None:
        numbers = [each.name for each in fields_of(type(self)) if each.type in (int, float)]
        bad = [
            refused(self, name, "must be a positive number", "leave it out")
            for name in numbers
            if name not in self.MAY_BE_ZERO and not getattr(self, name) > 0
        ]
        if not self.priority_unit >= 0:
            bad.append(refused(self, "priority_unit", "must not be negative", "leave it out for one level"))
        if not self.probe_devices >= 0:
            bad.append(refused(self, "probe_devices", "must not be negative", "leave it out for no probes"))
        bad += self.own_violations()
        if not bad and self.interval_s > self.window_s / 4:
            remedy = "look more often, or hold jobs back for longer"
            bad.append(refused(self, "interval_s", "must be at most a quarter of window_s", remedy))
        check(bad)

    @classmethod
    def load(cls, file: Path | None, flags: Mapping[str, object]) -> Self:
        """Return the settings of a TOML file, overridden by flags that are not None.

        Raises InvalidInputError with every broken rule.
        """
        return from_document(cls, read_toml(file) | {name: value for name, value in flags.items() if value is not None})

    def own_violations(self) -> Sequence[Violation]:
        """Return the violations of settings that only this scheduler has."""
        return ()

    def limits(self, *more: ActionKind, promise_ttl_s: float = DEFAULT_PROMISE_TTL_S) -> Limits:
        """Return the limits of every request: jobs may start or wait, and the actions `more` are allowed too."""
        return Limits.of(
            allowed=frozenset({ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.WAIT, *more}),
            allow_extrapolation=self.allow_extrapolation,
            probe_devices=self.probe_devices,
            probe_cap=self.probe_cap,
            probe_risk=self.probe_risk,
            ageing_s=self.patience_s,
            grant_patience_s=self.grant_patience_s,
            promise_ttl_s=promise_ttl_s,
        )

    def window_rules(self, *, settle_s: float, max_company: float = math.inf) -> WindowRules:
        """Return the rules by which windows are cut, with these settings."""
        return WindowRules(
            report_every_s=self.report_every_s,
            least_window_s=self.least_window_s,
            lookback_s=self.lookback_s,
            settle_s=settle_s,
            max_company=max_company,
        )
