"""`python -m tests.install_lines`: does every install line in the tree name the right distribution? Part of make check.

On the package index `interfere` is somebody else's project: a line that installs it would run foreign code.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OWN_TEXTS = ("tests/install_lines.py", "tests/test_install_lines.py")  # they spell wrong lines on purpose

# The arguments of `pip install`, on its line or, where that ends there, on the next one; up to the end of the command.
COMMAND = re.compile(r"pip3?\b[^\n`]{0,60}?\binstall\b[ \t]*(?:\\?\n[ \t#*]*)?([^\n`;&|]*)")
FOREIGN = re.compile(r"(?<![\w./~-])interfere(?![\w./-])(\[[\w, -]*\])?")
WITH_EXTRAS = re.compile(r"(?<![\w.-])(?:interfere(?:-gpu)?|(?<=['\" ])\.)\[([a-z][a-z, -]*)\]")


def defined_extras(root: Path = ROOT) -> set[str]:
    """Return the names of the extras of pyproject.toml."""
    return set(tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"])


def wrong_lines(text: str, extras: set[str]) -> Iterator[tuple[int, str]]:
    """Yield line number and reason of everything in a text that installs another project or an unknown extra."""
    for command in COMMAND.finditer(text):
        for name in FOREIGN.finditer(command[1]):
            line = text.count("\n", 0, command.start(1) + name.start()) + 1
            yield line, f"installs '{name[0]}', another project: write interfere-gpu, or . in a checkout"
    for name in WITH_EXTRAS.finditer(text):
        line = text.count("\n", 0, name.start()) + 1
        if name[0].startswith("interfere["):
            yield line, f"'{name[0]}' is an extra of another project: write interfere-gpu[...]"
        unknown = {extra.strip() for extra in name[1].split(",")} - extras
        if unknown:
            yield line, f"'{name[0]}': pyproject.toml defines no extra {', '.join(sorted(unknown))}"


def tracked_texts(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Yield name and text of every tracked file that is UTF-8."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        try:
            yield name, (root / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):  # not a text, or deleted and not yet committed
            continue


def findings(root: Path = ROOT) -> list[str]:
    """Return one line for each wrong install line of the tree: file, line, reason."""
    extras = defined_extras(root)
    return [
        f"{name}:{line}: {reason}"
        for name, text in tracked_texts(root)
        if name not in OWN_TEXTS
        for line, reason in wrong_lines(text, extras)
    ]


if __name__ == "__main__":
    if wrong := findings():
        sys.exit("\n".join(wrong))
