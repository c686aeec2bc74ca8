"""`interfere data` as a user types it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interfere.data.loading import datasets_folder
from interfere.data.tables import table_digest, write_table
from tests.data.sample_table import TABLE


def interfere(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "interfere", "data", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=240)


def test_list_shows_shipped_and_own_tables(tmp_path: Path) -> None:
    write_table(tmp_path / "work" / "tables" / "own", TABLE)
    done = interfere("list", "--work", tmp_path / "work", "--json", cwd=tmp_path)
    rows = {row["name"]: row for row in json.loads(done.stdout)["tables"]}
    assert rows["own"]["pairs"] == 4
    assert "cpu" in rows
    shown = interfere("list", "--work", tmp_path / "work", cwd=tmp_path).stdout
    assert rows["own"]["folder"] in "".join(shown.split()), "no folder is cut short"


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


def test_card_describes_a_table_and_writes_its_page(tmp_path: Path) -> None:
    own = tmp_path / "own"
    write_table(own, TABLE)
    (own / "card.md").write_text("counted & explained: 3 rows dropped")
    shown = interfere("card", own, cwd=tmp_path)
    assert "time-sliced" in shown.stdout
    assert "wrote interfere-work/cards/own.html" in shown.stderr
    document = json.loads(interfere("card", own, "--out", tmp_path / "my.html", "--json", cwd=tmp_path).stdout)
    assert "CC BY 4.0" in document["card"]
    assert document["page"] == str(tmp_path / "my.html")
    text = (tmp_path / "my.html").read_text(encoding="utf-8")
    assert text == (tmp_path / "interfere-work" / "cards" / "own.html").read_text(encoding="utf-8")
    assert table_digest(own) in text
    assert "counted &amp; explained" in text
    interfere("card", own, "--work", tmp_path / "work", cwd=tmp_path)
    assert (tmp_path / "work" / "cards" / "own.html").is_file()
    assert {p.name for p in own.iterdir()} == {"jobs.parquet", "pairs.parquet", "card.md"}


def test_card_opens_the_page_where_there_is_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(tmp_path / "own", TABLE)
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > "{tmp_path}/opened"\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    assert interfere("card", tmp_path / "own", cwd=tmp_path).returncode == 0
    assert not (tmp_path / "opened").exists()
    interfere("card", tmp_path / "own", "--open", cwd=tmp_path)
    page = tmp_path / "interfere-work" / "cards" / "own.html"
    assert (tmp_path / "opened").read_text().strip() == page.resolve().as_uri()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("BROWSER", "false-browser")
    alone = interfere("card", tmp_path / "own", "--open", cwd=tmp_path)
    assert (alone.returncode, "no browser found" in alone.stderr) == (0, True)


@pytest.mark.parametrize("out", [".", "own/jobs.parquet/card.html"])
def test_a_page_that_cannot_be_written_is_one_error(tmp_path: Path, out: str) -> None:
    write_table(tmp_path / "own", TABLE)
    done = interfere("card", tmp_path / "own", "--out", out, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot write here")
    assert "Traceback" not in done.stderr


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
