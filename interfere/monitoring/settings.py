"""How a site's monitoring is read: which labels name jobs, what counts their progress, and how windows are cut."""

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interfere.errors import InvalidInputError, Violation
from interfere.monitoring.dcgm import BY_WORKLOAD
from interfere.records.checks import check, text_violations
from interfere.sharing_modes import SharingMode, set_sharing_mode
from interfere.time_text import duration_s

if TYPE_CHECKING:
    from interfere.data.importers.site_traces import WorkloadMap

SELECTOR = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(\{[^{}]*\})?|\{[^{}]*\}")
_RANGE = re.compile(r"\[(\d+(?:ms|[smhd]))[\]:]")


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringSettings:
    """How a site's monitoring is read: labels, the counter of steps, and the length of windows."""

    progress: str = ""  # a counter of steps (a selector), or an expression of steps per second; empty: nothing counts
    by: str = BY_WORKLOAD  # what names the workload of a job: `workload`, or labels of the device series joined by "+"
    workloads: "WorkloadMap | None" = None  # of the jobs whose names a pattern matches, in place of the name by `by`
    label_map: tuple[tuple[str, str], ...] = ()  # (label of device series, label of progress series) that name one job
    device_type: str = ""  # of all devices; empty: by the label modelName
    mode: SharingMode = SharingMode.TIMESLICE  # how jobs share a device on this site
    site: str = "prometheus"  # begins the ids of observations
    cell_s: float = 3600.0  # windows are cut at whole multiples of it, and read so much at a time
    min_window_s: float = 60.0  # shortest time of constant company that becomes a window
    exporter_delay_s: float = 0.0  # how long ago an exporter's labels may have been true when it was asked
    step_s: float = 15.0  # at which an expression is evaluated

    def __post_init__(self) -> None:
        bad = set_sharing_mode(self) + text_violations(self, "by", "site")
        bad += [
            Violation(field=name, what=f"must be at least {low:g} s", value=repr(value), remedy="leave it out")
            for name, low in (("min_window_s", 1e-3), ("exporter_delay_s", 0.0), ("step_s", 1e-3))
            if not (value := getattr(self, name)) >= low or not math.isfinite(value)
        ]
        if not bad and not self.cell_s >= 4 * self.min_window_s:
            what, remedy = "must be at least four times min_window_s", "cut windows less often"
            bad.append(Violation(field="cell_s", what=what, value=repr(self.cell_s), remedy=remedy))
        check(bad)

    @property
    def progress_is_counter(self) -> bool:
        """Whether `progress` selects a counter, which is read sample by sample, and not an expression of steps per
        second."""
        return SELECTOR.fullmatch(self.progress.strip()) is not None

    @property
    def progress_range_s(self) -> float:
        """The longest range in the expression, such as 60 s in `rate(steps[1m])`; 0 for a counter."""
        ranges = _RANGE.findall(self.progress) if not self.progress_is_counter else []
        return max((duration_s(text) for text in ranges), default=0.0)


def parse_label_map(texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of labels in texts `device_label=progress_label`. Raises InvalidInputError."""
    pairs = []
    for text in texts:
        device_label, equals, progress_label = (part.strip() for part in text.partition("="))
        if not (device_label and equals and progress_label):
            remedy = "write label-of-DCGM=label-of-the-counter, e.g. pod=kubernetes_pod_name"
            raise InvalidInputError("not a pair of labels", value=repr(text), remedy=remedy)
        pairs.append((device_label, progress_label))
    return tuple(pairs)
