"""The way of docs/benchmark.md, typed as it stands there: an own model on the board, its rows in pandas."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from interfere.installation import HOME
from tests.docs.architecture_page import ROOT

TEN_MINUTES_S = 600.0


@pytest.mark.timeout(1200)
def test_an_own_estimator_stands_beside_ours_within_ten_minutes(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8")
    first = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)[0]
    _install, typed = first.split("\n", 1)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name, arguments in (("interfere", "-m interfere "), ("python", "")):
        (bin_folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments}"$@"\n')
        (bin_folder / name).chmod(0o755)
    environ = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONPATH": str(HOME)}
    began_s = time.monotonic()
    done = subprocess.run(
        ["bash", "-eu"],
        input=typed,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environ,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began_s < TEN_MINUTES_S
    boards = [line for line in done.stdout.splitlines() if line.startswith("## cpu, split: ")]
    assert len(boards) == 5
    scores, rows = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("scores", "rows"))
    errors = scores[scores["split"] == "pair"].set_index("model")["mae"]
    assert errors["my_forest:Forest"] < errors["mean"] / 2
    assert {"gbdt", "gavel-completion", "lucid-tree"} <= set(errors.index)
    assert len(rows[(rows["model"] == "my_forest:Forest") & (rows["split"] == "pair")]) == 256
    assert "published as v1 for the table cpu" in done.stderr
    assert " left · " in done.stderr
