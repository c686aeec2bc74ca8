"""The examples of README (Python) and docs/clients.md (Node), run as they stand there against a real server."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.client.local_tokens import LocalToken
from interfere.serving.server import RunningServer
from tests.docs.picture import pictures

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "examples" / "scheduler_loop"
ADDRESS = "127.0.0.1:50051"  # in the text
MAX_LINES = 10


PAGES = {"python": "README.md", "js": "docs/clients.md"}


def example(language: str, mark: str) -> str:
    """The only code block of a language that contains the mark."""
    text = (ROOT / PAGES[language]).read_text(encoding="utf-8")
    (only_block,) = [block for block in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL) if mark in block]
    return str(only_block)


def run(command: list[str], cwd: Path, **variables: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, timeout=180, check=False, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("language", "mark"), [("python", "PolicyClient"), ("js", "PolicyService")])
def test_an_example_is_ten_lines(language: str, mark: str) -> None:
    code = [line for line in example(language, mark).splitlines() if line.strip()]
    assert len(code) <= MAX_LINES
    assert max(map(len, code)) <= 120


def test_the_python_scheduler(server: RunningServer, tmp_path: Path) -> None:
    code = example("python", "PolicyClient")
    assert ADDRESS in code
    (tmp_path / "scheduler.py").write_text(code.replace(ADDRESS, server.address), encoding="utf-8")
    lines = run([sys.executable, str(tmp_path / "scheduler.py")], ROOT).splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["j1", "start_shared", "d0", "j2"],
        ["j2", "start_shared", "d0", "j1"],
    ]
    with PolicyClient(server.address) as client:
        assert client.model().online.observations == 1


def words_of(text: str) -> str:
    """The words of a text with single spaces, since a terminal breaks lines where it is narrow."""
    return " ".join(text.split())


def test_the_first_minute(server: RunningServer, tmp_path: Path) -> None:
    """README's outputs of `match` and `explain` are what the commands print."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    outputs = [block for language, block in re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL) if not language]
    matched, explained = outputs
    interfere = [sys.executable, "-m", "interfere"]
    printed = run([*interfere, "match", "--example", "--target", server.address], tmp_path, COLUMNS="110")
    title, *rows = [words_of(line) for line in matched.splitlines() if not set(line) & set("─…")]
    decision = printed.split()[1].rstrip(":")  # of this server and this request
    assert len(rows) >= 4
    for line in (re.sub(r"decision \w+", f"decision {decision}", title), *rows):
        assert line in words_of(printed)
    printed = run([*interfere, "explain", decision, "job-2", "--target", server.address], tmp_path, COLUMNS="110")
    assert words_of(explained) in words_of(printed)


def test_the_picture_shows_what_the_server_decides(server: RunningServer) -> None:
    for path, text in pictures(server.address).items():
        assert path.read_text(encoding="utf-8") == text, "draw it anew: python -m tests.docs.picture"


def test_the_node_scheduler(server: RunningServer, tmp_path: Path) -> None:
    if not (shutil.which("node") and shutil.which("npm")):
        reason = "needs node and npm: install nodejs"
        pytest.fail(reason) if os.environ.get("REQUIRE_ALL") else pytest.skip(reason)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PACKAGES / name, tmp_path)
    run(["npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"], tmp_path)
    code = example("js", "PolicyService")
    assert ADDRESS in code
    (tmp_path / "scheduler.js").write_text(code.replace(ADDRESS, server.address), encoding="utf-8")
    token = LocalToken(server.address).read()
    lines = run(["node", str(tmp_path / "scheduler.js")], ROOT, INTERFERE_TOKEN=token).splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["j1", "ACTION_KIND_START_SHARED", "d0", "j2"],
        ["j2", "ACTION_KIND_START_SHARED", "d0", "j1"],
    ]
    assert all(float(line.split()[4]) > 1.0 for line in lines)
