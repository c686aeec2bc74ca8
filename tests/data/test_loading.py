"""A table is loaded by its folder, its name in the workspace, or the name of a shipped one, in this order."""

import sys
from pathlib import Path

import pytest

from interfere.data.loading import load_table, shipped_table, table_folder
from interfere.data.tables import read_table, write_table
from interfere.errors import NotFoundError, TableError, UnfitError


def test_a_folder_then_the_workspace_then_what_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = read_table(shipped_table("cpu"))
    assert load_table("cpu", work=tmp_path) == load_table(shipped_table("cpu")) == shipped
    own = tmp_path / "tables" / "cpu"
    write_table(own, shipped)
    assert table_folder("cpu", tmp_path) == own
    assert load_table(str(own)) == shipped
    monkeypatch.setenv("INTERFERE_WORK", str(tmp_path))
    assert load_table("cpu").jobs == shipped.jobs


def test_an_unknown_name_lists_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "tables" / "mine").mkdir(parents=True)
    with pytest.raises(NotFoundError, match=r"(?s)nope.*mine.*cpu"):
        load_table("nope", work=tmp_path)


def test_an_empty_folder_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="has no"):
        load_table(tmp_path)


def test_without_pyarrow_the_remedy_is_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnfitError, match=r"(?s)'pyarrow'.*pip install.*\[train\]"):
        load_table("cpu")
