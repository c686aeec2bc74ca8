"""Which tests watch the clock: they run by themselves, the others on two workers (`make test`)."""

import signal
from pathlib import Path

import pytest

# They pin cores, measure and compare times: a second worker would be the noise that they refuse.
MEASURING = ("profiling/programs/", "profiling/test_", "soak/")
HERE = Path(__file__).parent


def pytest_configure() -> None:
    # A shell starts what runs in its background deaf to Ctrl-C, and children inherit that: tests send it to theirs.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(HERE).as_posix().startswith(MEASURING) or item.get_closest_marker("slurm"):
            item.add_marker(pytest.mark.measuring)
