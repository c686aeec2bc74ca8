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

import pwd
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import ClassVar

from interfere.errors import InvalidInputError, Violation
from interfere.records import NAN
from interfere.records.checks import refused
from interfere.serving.adapters.settings import AdapterSettings, SharedDeviceFacts
from interfere.serving.adapters.slurm.jobs import GpuAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRule(SharedDeviceFacts):
    """The facts of the GPUs whose node name and GRES type match two patterns."""

    nodes: str = "*"
    gres: str = "*"

    def fits(self, address: GpuAddress) -> bool:
        """Whether the rule describes this GPU."""
        return fnmatchcase(address.node, self.nodes) and fnmatchcase(address.gres, self.gres)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings(AdapterSettings):
    """All settings of the adapter. `window_s` is the deferral of job_submit.lua, `start_s` Slurm's sched_interval."""

    devices: tuple[DeviceRule, ...] = ()
    cluster: str = "slurm"
    host_reserve_gib: float = (
        NAN  # of each node, to back what its GPUs grant beyond their memory; absent: what they need
    )
    only_user: str = ""  # advise this user's jobs only, with no more rights than theirs; empty: an operator's
    spool: Path = Path("/var/spool/interfere")
    lock: Path = Path("/run/interfere/slurm.lock")
    metrics: Path | None = None  # a file for the textfile collector of Prometheus' node exporter
    most_deferred_s: float = 1800.0  # a job that waited this long is not deferred any more: its priority decides
    # A job whose end is predicted within this time, before or after now, counts as ended: the next job in its place is
    # chosen, and Slurm starts that one when the place is free. Such jobs say remaining_s in their comment. 0: none.
    prepare_s: float = 5.0
    # Stop running jobs to start them on another GPU? Those that write a checkpoint at SIGTERM: they may be requeued,
    # and their comment says remaining_s (alone, from the start) and checkpoint_s.
    moves: bool = False
    lookback_s: float = 240.0  # less than MinJobAge (300 s): older jobs may be forgotten by Slurm

    MAY_BE_ZERO: ClassVar[tuple[str, ...]] = (
        *AdapterSettings.MAY_BE_ZERO,
        "most_deferred_s",
        "host_reserve_gib",
        "prepare_s",
    )

    @property
    def grants_memory(self) -> bool:
        """Whether any GPU grants memory."""
        return any(rule.grants_memory for rule in self.devices)

    def device(self, address: GpuAddress) -> DeviceRule | None:
        """Return the description of a GPU; None where no rule matches."""
        return next((rule for rule in self.devices if rule.fits(address)), None)

    @property
    def only_user_id(self) -> int | None:
        """Return the id of the only user whose jobs are advised; None where all users' jobs are.

        Raises InvalidInputError for a user that does not exist.
        """
        try:
            return pwd.getpwnam(self.only_user).pw_uid if self.only_user else None
        except KeyError:
            raise InvalidInputError("no such user", value=self.only_user, remedy="check only_user") from None

    def own_violations(self) -> Sequence[Violation]:
        """Return a violation where no GPU is described."""
        remedy = 'add [[devices]] with type = "a100"'
        return () if self.devices else (refused(self, "devices", "no GPU is described", remedy),)
