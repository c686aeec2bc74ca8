"""The console script as a user meets it: help, exit statuses, foreign folders, missing extras, errors as JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import interfere
from interfere.cli import commands, missing_extra

NAMES = (
    "data",
    "evaluate",
    "explain",
    "grants",
    "match",
    "observe",
    "predict",
    "profile",
    "promote",
    "quickstart",
    "replay",
    "retrain",
    "serve",
    "slurm",
    "timeline",
    "train",
    "ui",
)


def run(*arguments: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "interfere", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
        env={**os.environ, **environment},
        timeout=120,
    )


def test_help_names_every_command_with_its_line() -> None:
    done = run("--help")
    assert done.returncode == 0
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("  "))
    assert set(NAMES) == set(lines) == set(commands())
    assert all(len(text) > 10 and "unavailable" not in text for text in lines.values())


def test_version() -> None:
    assert run("--version").stdout == f"interfere {interfere.__version__}\n"


@pytest.mark.parametrize("arguments", [("nope",), ("serve", "--nope"), ("match",), ("profile", "pairs")])
def test_wrong_usage_exits_2_without_traceback(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("sibling", ["training", "serving", "features"])
def test_somebody_elses_folder_is_named_and_never_run(tmp_path: Path, sibling: str) -> None:
    """`python -m` puts the current folder first on the import path: the worst case."""
    (tmp_path / sibling).mkdir()
    (tmp_path / sibling / "__init__.py").write_text("raise SystemExit('foreign code ran')")
    command = "serve" if sibling == "serving" else "train"
    done = run(command, "--data=cpu", folder=tmp_path, PYTHONPATH=str(tmp_path))
    assert "foreign code ran" not in done.stderr + done.stdout
    assert done.returncode == 1
    assert str(tmp_path / sibling) in done.stderr
    assert "remedy" in done.stderr


def test_an_error_is_one_json_document_with_json() -> None:
    done = run("data", "check", "/nowhere/at/all", "--json")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    document = json.loads(done.stdout)["error"]
    assert document["remedy"]
    assert "/nowhere/at/all" in json.dumps(document)


def test_a_missing_library_names_its_extra() -> None:
    text = str(missing_extra(ModuleNotFoundError("No module named 'mlflow'", name="mlflow")))
    assert "pip install 'interfere[train]'" in text
    text = str(missing_extra(ModuleNotFoundError("x", name="onnxruntime.capi")))
    assert "pip install 'interfere[serve]'" in text


def test_a_reader_that_leaves_early_sees_no_traceback() -> None:
    command = f"{sys.executable} -m interfere --help | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in done.stderr
