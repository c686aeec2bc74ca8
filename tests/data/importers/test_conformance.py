"""Importers of ours under the suite that importers of other packages are held to."""

import shutil
from pathlib import Path

import pytest

from interfere.data.importers.gavel import import_gavel
from interfere.testing.importers import Importer, ImporterLaws
from tests.data.importers.public_files import public


class TestGavel(ImporterLaws):
    @pytest.fixture
    def importer(self) -> Importer:
        return import_gavel

    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        return Path(shutil.copyfile(public("gavel/oracle_throughputs.json"), tmp_path / "throughputs.json"))
