"""A simulated day, its audit, and a real server that takes what is watched."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.config import SHIPPED_MODEL, Settings
from interfere.monitoring.audit.audit import AuditReport, audit
from interfere.monitoring.settings import MonitoringSettings
from interfere.serving.server import start_server
from tests.monitoring.recorded_site import RecordedSite
from tests.monitoring.simulated_site import SimulatedSite

SETTINGS = MonitoringSettings(progress="train_steps_total")


@pytest.fixture(scope="session")
def day() -> SimulatedSite:
    return SimulatedSite(seed=1, hours=24, devices=4)


@pytest.fixture(scope="session")
def report(day: SimulatedSite) -> AuditReport:
    return audit(RecordedSite(day.block(), day.end_s), SETTINGS, day.start_s, day.end_s)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[PolicyClient]:
    """Of a real server on the shipped model, which knows neither the site's workloads nor its devices."""
    settings = Settings(model=SHIPPED_MODEL, work=tmp_path / "work", port=0, grace_s=1.0, decision_workers=0)
    server = start_server(settings)
    with PolicyClient(server.address, timeout_s=30.0) as client:
        yield client
    server.stop()
