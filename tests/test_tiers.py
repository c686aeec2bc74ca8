"""Make runs every tier: the files that conftest names exist, and none is outside the folders that make collects."""

import re

import pytest

from tests.conftest import HERE, JOURNEYS, MEASURING

MAKEFILE = (HERE.parent / "Makefile").read_text(encoding="utf-8")


def test_every_name_of_a_tier_is_a_file_or_a_folder() -> None:
    assert [name for name in (*MEASURING, *JOURNEYS) if not (HERE / name).exists()] == []


@pytest.mark.parametrize(("mark", "by_name"), [("measuring", MEASURING), ("slurm", ())])
def test_make_collects_every_file_with_a_mark(mark: str, by_name: tuple[str, ...]) -> None:
    """The folders of a tier are written in the Makefile; a test with its mark elsewhere would never run."""
    (folders,) = re.findall(rf"^{mark.upper()} := (.+)$", MAKEFILE, re.MULTILINE)
    assert f"$({mark.upper()})" in MAKEFILE
    marked = {
        f"tests/{path.relative_to(HERE).as_posix()}"
        for path in HERE.rglob("test_*.py")
        if f"mark.{mark}" in path.read_text(encoding="utf-8") or path.relative_to(HERE).as_posix() in by_name
    }
    assert len(marked) >= 3
    assert {path for path in marked if not path.startswith(tuple(f"{each}/" for each in folders.split()))} == set()
