"""The tiers of the tests: which belong to `make test`, which to `make journeys`, and which watch the clock."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Properties have no limit of time: a stall of the machine would fail an example. They try the same examples every time:
# a rare failure belongs to whoever searches for it (`pytest --hypothesis-profile search`), not to the next change.
NO_LIMIT_OF_TIME = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", NO_LIMIT_OF_TIME, print_blob=True)
settings.register_profile("repeatable", NO_LIMIT_OF_TIME, derandomize=True, database=None)
settings.load_profile("repeatable")

HERE = Path(__file__).parent
# Tests that pin cores, measure and compare times, or keep every core busy: they run one after another.
MEASURING = (
    "profiling/programs/test_command_measuring.py",
    "profiling/programs/test_gpu.py",
    "profiling/programs/test_misbehaving_programs.py",
    "profiling/programs/test_run.py",
    "profiling/test_command.py",
    "profiling/test_measurer.py",
    "profiling/test_profiler_conformance.py",
    "profiling/test_services_and_gangs.py",
    "profiling/test_worker_pool.py",
    "profiling/test_workload_profiler.py",
    "soak/test_busy_host.py",
    "soak/test_kubernetes.py",
    "soak/test_load.py",
    "soak/test_responsiveness.py",
)
# Slow tests that every landing needs: whole commands, real trainings and servers, what README and docs show.
JOURNEYS = (
    "store/test_several_writers.py",
    "serving/test_replicas.py",
    "commands/quickstart/test_command.py",
    "deploy/test_monitoring.py",
    "docs/",
    "examples/",
    "packaging/",
    "profiling/programs/test_misbehaving_programs.py",
    "profiling/test_command.py",
    "profiling/static/test_static_profiler.py",
    "serving/test_dashboard.py",
    "sharing/test_run.py",
    "soak/",
    "training/publishing/test_mlflow_ui.py",
    "training/test_pipeline.py",
    "training/test_retrain.py",
    "training/test_server.py",
)


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts background jobs with Ctrl-C ignored, and children inherit that: tests send it to theirs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Servers that are killed leave their token files: not among those of the user's own servers.
    if "INTERFERE_RUNTIME" not in os.environ:
        os.environ["INTERFERE_RUNTIME"] = runtime = tempfile.mkdtemp(prefix="interfere-tests-")
        config.add_cleanup(lambda: shutil.rmtree(runtime, ignore_errors=True))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(HERE).as_posix()
        on_slurm = item.get_closest_marker("slurm") is not None
        if path.startswith(MEASURING) or on_slurm:
            item.add_marker(pytest.mark.measuring)
        if path.startswith(JOURNEYS) or on_slurm:
            item.add_marker(pytest.mark.journey)
