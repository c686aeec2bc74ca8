"""A minute of a live site: exporter, Prometheus, watcher and server as processes and threads of their own."""

from pathlib import Path

import pytest

from tests.monitoring.live_site import check_live, run_live
from tests.monitoring.prometheus_server import needs_prometheus

pytestmark = pytest.mark.journey


def test_a_minute_live_with_prometheus_and_server_away_in_between(tmp_path: Path) -> None:
    needs_prometheus()
    run = run_live(tmp_path, 45.0, seed=3)
    found, long = check_live(run)
    print(f"{len(run.observations)} observations; {found} of {long} long windows found")
    assert long >= 5
    assert found >= 0.6 * long
    assert "waiting: Prometheus does not answer" in run.log
