"""A model folder is replaced in one move or not at all."""

from pathlib import Path

import pytest

from interfere.errors import UnfitError
from interfere.training.publishing.publication import replace_folder


def fill(folder: Path) -> None:
    (folder / "manifest.json").write_text("new")


def test_a_folder_is_made_with_its_parents_and_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "model"
    replace_folder(target, fill)
    (target / "leftover").write_text("of the old model")
    replace_folder(target, fill)
    assert [path.name for path in target.iterdir()] == ["manifest.json"]
    assert [path.name for path in target.parent.iterdir()] == ["model"]  # nothing temporary stays


def test_what_is_not_a_model_folder_is_never_replaced(tmp_path: Path) -> None:
    mine = tmp_path / "thesis"
    mine.mkdir()
    (mine / "chapter1.md").write_text("years of work")
    file = tmp_path / "file"
    file.write_text("x")
    for target in (mine, file):
        with pytest.raises(UnfitError, match="not a model folder"):
            replace_folder(target, fill)
    assert (mine / "chapter1.md").read_text() == "years of work"
    empty = tmp_path / "empty"
    empty.mkdir()
    replace_folder(empty, fill)
    assert (empty / "manifest.json").is_file()


def test_a_failure_while_writing_leaves_the_old_folder(tmp_path: Path) -> None:
    target = tmp_path / "model"
    replace_folder(target, fill)

    def full(folder: Path) -> None:
        (folder / "manifest.json").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(UnfitError, match="No space left"):
        replace_folder(target, full)
    assert (target / "manifest.json").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UnfitError, match="cannot be written"):
        replace_folder(tmp_path / "file" / "model", fill)
