"""A live site watched for ten minutes (`make soak`)."""

import os
from pathlib import Path

import pytest

from tests.monitoring.live_site import check_live, run_live
from tests.monitoring.prometheus_server import needs_prometheus

SECONDS = 12 * int(os.environ.get("SOAK_ROUNDS", "0"))


@pytest.mark.skipif(SECONDS == 0, reason="the minute's form of it is in tests/monitoring/test_live.py")
@pytest.mark.timeout(900)
def test_ten_minutes_live(tmp_path: Path) -> None:
    needs_prometheus()
    run = run_live(tmp_path, float(max(45, SECONDS)), seed=4)
    found, long = check_live(run)
    print(f"{len(run.observations)} observations; {found} of {long} long windows found")
    assert long >= 5
    assert found >= 0.6 * long
