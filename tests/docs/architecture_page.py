"""Reads docs/architecture.md: its layers, its tables of files and names, and its examples."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
EXTENSION = ROOT / "examples" / "extension" / "interfere_example"


def page() -> str:
    """The whole page."""
    return PAGE.read_text(encoding="utf-8")


def example(name: str) -> str:
    """The code of one example: a module of the example package, or a block marked as ```python NAME."""
    module = EXTENSION / f"{name}.py"
    return module.read_text(encoding="utf-8") if module.is_file() else _block(f"python {name}")


def proto_example(name: str) -> str:
    """The lines of the wire contract of one example, marked as ```proto NAME."""
    return _block(f"proto {name}")


def layers(name: str) -> list[set[str]]:
    """The layers of one diagram, from high to low; a remark follows each after two spaces."""
    return [set(re.split(r"\s\|\s", line.split("  ")[0].strip())) for line in _block(f"layers {name}").splitlines()]


def walk_rows() -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The (files, names) of every table row whose second cell names files."""
    rows = []
    for line in page().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        files = re.findall(r"`([\w./]+\.py)`", cells[1]) if len(cells) == 4 else []
        if files:
            rows.append((tuple(files), tuple(re.findall(r"`([\w.]+)`", cells[2]))))
    return rows


def quoted() -> list[str]:
    """Everything in backticks outside the code blocks."""
    text = re.sub(r"```.*?```", "", page(), flags=re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


def _block(info: str) -> str:
    (only_block,) = re.findall(rf"^```{re.escape(info)}\n(.*?)^```$", page(), re.DOTALL | re.MULTILINE)
    return str(only_block)
