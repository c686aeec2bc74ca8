"""The picture in CONTRIBUTING.md shows the layers that are enforced, in their order."""

import itertools
import re

from tests.docs.architecture_page import ROOT
from tests.docs.test_architecture import contract_layers

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def drawn_rows() -> list[list[str]]:
    """The packages of each row of the picture, from top to bottom."""
    (picture,) = re.findall(r"^```text house\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    packages = set().union(*contract_layers("interfere"))
    rows = [re.findall(r"(?:^ +|│ | {3,})([a-z]+)\b(?= {2,}|$)", line) for line in picture.splitlines()]
    return [[word for word in row if word in packages] for row in rows if set(row) & packages]


def test_nothing_in_the_picture_imports_upwards() -> None:
    level = {name: k for k, layer in enumerate(contract_layers("interfere")) for name in layer}
    rows = drawn_rows()
    assert sum(map(len, rows)) >= 15
    assert {"serving", "training", "features", "policy", "predict", "records", "errors"} <= {n for r in rows for n in r}
    for above, below in itertools.pairwise(rows):
        assert max(level[name] for name in above) < min(level[name] for name in below)


def test_folders_of_the_table_exist() -> None:
    folders = re.findall(r"`(\w+/)`", PAGE)
    assert len(folders) >= 8
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []
