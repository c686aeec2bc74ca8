"""`interfere data` as a user types it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interfere.data.shipped import datasets_folder
from interfere.data.tables import write_table
from tests.data.sample import TABLE


def interfere(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "interfere", "data", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


def test_list_shows_shipped_and_own_tables(tmp_path: Path) -> None:
    write_table(tmp_path / "work" / "tables" / "own", TABLE)
    done = interfere("list", "--work", tmp_path / "work", "--json", cwd=tmp_path)
    rows = {row["name"]: row for row in json.loads(done.stdout)["tables"]}
    assert rows["own"]["pairs"] == 4
    assert "cpu" in rows
    assert "own" in interfere("list", "--work", tmp_path / "work", cwd=tmp_path).stdout


def test_check_accepts_the_shipped_tables_and_names_a_corrupt_file(tmp_path: Path) -> None:
    done = interfere("check", "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["manifest_files"] >= 4
    write_table(tmp_path / "own", TABLE)
    assert "ok:" in interfere("check", tmp_path / "own", cwd=tmp_path).stdout
    path = tmp_path / "own" / "jobs.parquet"
    path.write_bytes(path.read_bytes()[:50])
    broken = interfere("check", tmp_path / "own", cwd=tmp_path)
    assert broken.returncode == 1
    assert "jobs.parquet" in broken.stderr
    assert "remedy" in broken.stderr
    assert "Traceback" not in broken.stderr
    as_json = interfere("check", tmp_path / "own", "--json", cwd=tmp_path)
    assert json.loads(as_json.stdout)["error"]["code"] == "INVALID_ARGUMENT"


def test_card_describes_a_table(tmp_path: Path) -> None:
    write_table(tmp_path / "own", TABLE)
    assert "time-sliced" in interfere("card", tmp_path / "own", cwd=tmp_path).stdout
    assert "CC BY 4.0" in json.loads(interfere("card", tmp_path / "own", "--json", cwd=tmp_path).stdout)["card"]


def test_manifest_is_written_and_then_checks(tmp_path: Path) -> None:
    shutil.copytree(datasets_folder(), tmp_path / "datasets")
    (tmp_path / "datasets" / "cpu" / "note.txt").write_text("new")
    assert interfere("check", tmp_path / "datasets", cwd=tmp_path).returncode == 1
    done = interfere("manifest", tmp_path / "datasets", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["files"] >= 5
    assert interfere("check", tmp_path / "datasets", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("arguments", [("check", "/nowhere"), ("card", "/nowhere"), ("manifest", "/proc/nowhere")])
def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = interfere(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
