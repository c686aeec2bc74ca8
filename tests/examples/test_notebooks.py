"""The notebooks run from top to bottom, each in a process of its own, as a kernel runs their cells."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from interfere.installation import HOME

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def test_there_are_three() -> None:
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells if cell["cell_type"] == "code"), "outputs are not kept"
    (tmp_path / "cells.py").write_text("\n\n".join(code), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "cells.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HOME)},
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
