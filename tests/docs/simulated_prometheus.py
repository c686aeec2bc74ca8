"""The Prometheus of the tutorial on monitoring: python -m tests.docs.simulated_prometheus [PORT], until Ctrl-C.

It holds twelve simulated hours of two A100s that six workloads share, with planted slowdowns, restarts and gaps.
"""

import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.monitoring.prometheus_server import backfill, running_prometheus
from tests.monitoring.simulated_site import SimulatedSite

HOURS = 12


def recent_site() -> SimulatedSite:
    """The simulated hours, the last of which ended an hour or two ago: windows are cut at whole hours."""
    end_s = (time.time() // 3600 - 1) * 3600
    return SimulatedSite(seed=1, hours=HOURS, devices=2, start_s=end_s - HOURS * 3600)


@contextlib.contextmanager
def simulated_prometheus(folder: Path, *, port: int = 0) -> Iterator[str]:
    """A Prometheus that has recorded these hours; its address."""
    backfill(recent_site().block(), folder / "data")
    with running_prometheus(folder / "data", port=port) as url:
        yield url


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as name,
        simulated_prometheus(Path(name), port=int(sys.argv[1]) if len(sys.argv) > 1 else 9090) as address,
        contextlib.suppress(KeyboardInterrupt),
    ):
        print(f"{address}: {HOURS} simulated hours of two devices; stop with Ctrl-C", flush=True)
        threading.Event().wait()
