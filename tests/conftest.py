"""How tests share two cores: those that measure time follow one another, a file's tests stay together.

Only a run with several workers (`make test`) reads the groups.
"""

from pathlib import Path

import pytest

MEASURING = ("profiling", "soak", "commands/test_quickstart.py")  # they pin cores and watch the clock
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        place = item.path.relative_to(HERE).as_posix()
        item.add_marker(pytest.mark.xdist_group("measuring" if place.startswith(MEASURING) else place))
