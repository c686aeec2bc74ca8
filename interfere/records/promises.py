"""A promise: a planned start or move that the scheduler may be carrying out: nobody else gets its place meanwhile."""

from dataclasses import dataclass

from interfere.records.cluster import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One planned start or move, and every decision that told of it."""

    action: Action  # with the time by which it expires
    decision_ids: tuple[str, ...]  # the first made it, the others repeated it
    from_device_id: str = ""  # where a resident that is to move runs now

    @property
    def places(self) -> tuple[str, ...]:
        """Every device that it holds."""
        return (*self.action.places, self.from_device_id) if self.from_device_id else self.action.places


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeLedger:
    """What one scope has been promised. `revision` grows by one with every write; 0 before the first."""

    scope: str
    revision: int = 0
    now_s: float = 0.0  # the caller's clock at the last decision
    promises: tuple[Promise, ...] = ()
