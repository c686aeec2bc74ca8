"""A `--data` value finds its table folder."""

from pathlib import Path

import pytest

from interfere.data.loading import shipped_table
from interfere.errors import NotFoundError
from interfere.training.dataset import find_table_folders


def test_a_folder_wins_over_the_workspace_and_that_over_the_shipped_tables(tmp_path: Path) -> None:
    own = tmp_path / "tables" / "mine"
    own.mkdir(parents=True)
    assert find_table_folders([str(own), "mine", "cpu"], tmp_path) == (own, own, shipped_table("cpu"))
    shadow = tmp_path / "tables" / "cpu"
    shadow.mkdir()
    assert find_table_folders(["cpu"], tmp_path) == (shadow,)


def test_an_unknown_table_lists_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "tables" / "mine").mkdir(parents=True)
    with pytest.raises(NotFoundError, match=r"(?s)nope.*mine.*cpu"):
        find_table_folders(["nope"], tmp_path)
