"""Types a page of docs as a reader does: its programs saved, its commands run in order, its output compared.

A page holds blocks of commands (bash), of programs to save under their title (python), and of what
the commands above print, shortened (text); others are read only. All commands of a page run in one shell, so that
variables and background jobs live on.
"""

import contextlib
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
SHORTENED = "…"  # in expected output: a line of it stands for any lines, a word of it for any words
MARK = "----- after block"
DEFAULT_ADDRESS = "127.0.0.1:50051"
NUMBER = r"(\d+(?:\.\d+)?)"
BLOCK = re.compile(r"^```(\w+)(?: title=\"(.*)\"| .*)?\n((?:.*\n)*?)```$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block of a page."""

    language: str
    file: str  # the title of the block: the name under which a reader saves it; may be empty
    text: str


def blocks_of(page: str) -> tuple[Block, ...]:
    """All fenced blocks of a page, by its path from the root of the repository."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return tuple(Block(language=m[1], file=m[2] or "", text=m[3]) for m in BLOCK.finditer(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """What a page did."""

    folder: Path
    status: int
    outputs: tuple[str, ...]  # of each bash block, standard output and standard error as they came
    cpu_s: float  # of everything that was started and has ended


def type_page(
    page: str, folder: Path, port: int, replaced: Mapping[str, str], *, timeout_s: float = PATIENCE_S * 9
) -> Typed:
    """Save the programs and run the commands of a page in a folder, with some of its texts (addresses) replaced.

    The folder with this interpreter's programs comes first on the path, as after `activate`. Servers of the page listen
    on `port`, as an operator's variables may say. The shell stops at the first command that fails, and ends what it
    started.
    """
    script = ["set -eu -o pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT"]
    for block in blocks_of(page):
        text = block.text
        for old, new in ({DEFAULT_ADDRESS: f"127.0.0.1:{port}"} | dict(replaced)).items():
            text = text.replace(old, new)
        if block.language == "python" and block.file:
            script.append(f"cat > {block.file} <<'END_OF_THE_PROGRAM'\n{text}END_OF_THE_PROGRAM")
        if block.language == "bash":
            script += [text, f'echo "{MARK}"']
    began, log = os.times(), folder / ".typed.log"
    with log.open("w") as out:
        shell = subprocess.Popen(
            ["bash", "-c", "\n".join(script)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=folder,
            env=_environment(port),
            start_new_session=True,
        )
        try:
            shell.wait(timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # what a command that failed has left behind
            shell.wait()
    ended = os.times()
    cpu_s = ended.children_user + ended.children_system - began.children_user - began.children_system
    outputs = tuple(log.read_text(encoding="utf-8").split(f"{MARK}\n"))
    return Typed(folder=folder, status=shell.returncode, outputs=outputs, cpu_s=cpu_s)


def _environment(port: int) -> dict[str, str]:
    """A reader's environment: this Python's programs on the path, the port of the server, lines of 80 columns."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("INTERFERE_", "MLFLOW_"))}
    kept |= {name: os.environ[name] for name in ("INTERFERE_RUNTIME",) if name in os.environ}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept |= {"INTERFERE_PORT": str(port), "INTERFERE_TARGET": f"127.0.0.1:{port}", "INTERFERE_METRICS_PORT": "-1"}
    kept |= {"INTERFERE_TIMEOUT_S": f"{PATIENCE_S:g}"}
    return kept | {"PATH": path, "COLUMNS": "80", "PYTHONUNBUFFERED": "1"}


def expected_outputs(page: str) -> list[tuple[int, str]]:
    """(index of a bash block, what the page says it prints) of each ```text block."""
    found, last = [], -1
    for block in blocks_of(page):
        last += block.language == "bash"
        if block.language == "text":
            found.append((last, block.text))
    return found


def missing_lines(expected: str, printed: str) -> list[str]:
    """The expected lines that the printed ones do not hold in this order; numbers may be a little off."""
    lines, missing = iter(printed.splitlines()), []
    for line in expected.splitlines():
        if line.strip() not in ("", SHORTENED) and not any(is_same_line(line, each) for each in lines):
            missing.append(line)
            break  # everything below it would be missing too
    return missing


def is_same_line(expected: str, printed: str) -> bool:
    """Whether a printed line is the expected one: words equal, numbers within 5 % or 0.02, `…` stands for any words."""
    return _is_same(expected.split(), printed.split())


def _is_same(expected: list[str], printed: list[str]) -> bool:
    if not expected:
        return not printed
    if expected[0] == SHORTENED:
        return any(_is_same(expected[1:], printed[k:]) for k in range(1, len(printed) + 1))
    return bool(printed) and _is_same_word(expected[0], printed[0]) and _is_same(expected[1:], printed[1:])


def _is_same_word(expected: str, printed: str) -> bool:
    parts = re.split(rf"(\d+(?:\.\d+)?|{SHORTENED})", expected)
    forms = (NUMBER if part[:1].isdigit() else ".*" if part == SHORTENED else re.escape(part) for part in parts)
    found, wanted = re.fullmatch("".join(forms), printed), [part for part in parts if part[:1].isdigit()]
    return found is not None and all(
        math.isclose(float(a), float(b), rel_tol=0.05, abs_tol=0.021)
        for a, b in zip(wanted, found.groups(), strict=True)
    )
