"""What `--data` means."""

from pathlib import Path

import pytest

from interfere.data.shipped_tables import shipped_table
from interfere.errors import NotFoundError
from training.sources import table_folders


def test_a_folder_then_the_workspace_then_what_ships(tmp_path: Path) -> None:
    own = tmp_path / "tables" / "mine"
    own.mkdir(parents=True)
    assert table_folders([str(own), "mine", "cpu"], tmp_path) == (own, own, shipped_table("cpu"))
    shadow = tmp_path / "tables" / "cpu"
    shadow.mkdir()
    assert table_folders(["cpu"], tmp_path) == (shadow,)


def test_an_unknown_table_lists_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "tables" / "mine").mkdir(parents=True)
    with pytest.raises(NotFoundError, match=r"(?s)nope.*mine.*cpu"):
        table_folders(["nope"], tmp_path)
