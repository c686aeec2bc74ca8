"""Samples in memory as a source, with a clock that a test moves and an outage that it makes."""

from interfere.errors import UnavailableError
from interfere.monitoring.samples import SampleBlock


class RecordedSite:
    """Samples up to `clock_s`."""

    def __init__(self, block: SampleBlock, clock_s: float) -> None:
        self.block, self.clock_s, self.away, self.reads = block, clock_s, False, 0

    def now_s(self) -> float:
        """The clock."""
        if self.away:
            raise UnavailableError("monitoring is away", value="test", remedy="bring it back")
        return self.clock_s

    def read(self, start_s: float, end_s: float) -> SampleBlock:
        """What was recorded by now."""
        self.now_s()
        self.reads += 1
        return self.block.between(start_s, min(end_s, self.clock_s))

    def device_label_names(self) -> frozenset[str]:
        """All labels."""
        return self.block.label_names
