"""The laws of every importer: a pure function from a file to the records of a table, or one error that names it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from interfere.data.importers.import_result import ImportResult
from interfere.data.importers.import_writer import write_import
from interfere.data.tables import read_table
from interfere.data.traces import read_trace
from interfere.errors import InterfereError

Importer = Callable[[Path], ImportResult]


class ImporterLaws:
    """Every test gets `importer` and `source`, a file that it reads."""

    @pytest.fixture
    def importer(self) -> Importer:
        """Override: the importer."""
        raise NotImplementedError

    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        """Override: a file that the importer reads."""
        raise NotImplementedError

    def test_what_is_imported_is_read_back_equal(self, importer: Importer, source: Path, tmp_path: Path) -> None:
        imported = importer(source)
        assert source in {file.path for file in imported.files} or source.is_dir()
        write_import(tmp_path / "written", imported)
        if imported.trace is not None:
            assert read_trace(tmp_path / "written").jobs == imported.trace.jobs
            return
        table = read_table(tmp_path / "written")
        assert table.pairs == tuple(imported.pairs)
        assert {(job.workload, job.device_type) for job in table.jobs} == {
            (job.workload, job.device_type) for job in imported.jobs
        }

    def test_equal_files_give_equal_records_and_the_file_is_left_as_it_was(
        self, importer: Importer, source: Path
    ) -> None:
        before = source.read_bytes() if source.is_file() else b""
        first, again = importer(source), importer(source)
        assert repr(first) == repr(again)
        assert (source.read_bytes() if source.is_file() else b"") == before

    @pytest.mark.parametrize(
        "damage",
        [
            lambda _: b"",
            lambda content: b"\x00\xff" + content,
            lambda content: content[: len(content) // 2] + b"\xff",
        ],
        ids=["empty", "not text", "cut off"],
    )
    def test_a_damaged_file_is_one_error_that_names_it(
        self, importer: Importer, source: Path, damage: Callable[[bytes], bytes]
    ) -> None:
        if source.is_dir():
            pytest.skip("the source is a folder: damage its files in tests of your own")
        source.write_bytes(damage(source.read_bytes()))
        with pytest.raises(InterfereError, match=source.name):
            importer(source)

    def test_a_missing_file_is_one_error_that_names_it(self, importer: Importer, tmp_path: Path) -> None:
        with pytest.raises(InterfereError, match=r"no-such-file\.csv"):
            importer(tmp_path / "no-such-file.csv")
