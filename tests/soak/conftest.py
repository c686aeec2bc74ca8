"""The tiny model of `tests.models`."""

from pathlib import Path

import pytest

from tests.models import publish


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("model") / "tiny")
