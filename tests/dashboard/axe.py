"""`python -m tests.dashboard.axe`: install axe-core, which checks pages for accessibility, from npm into .venv/axe."""

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / ".venv" / "axe"
SCRIPT = FOLDER / "package" / "axe.min.js"
PACKAGE = "axe-core@4.14.1"


def need() -> Path:
    """The script; without it the test is skipped, or fails where REQUIRE_ALL is set."""
    if not SCRIPT.is_file():
        (pytest.fail if os.environ.get("REQUIRE_ALL") else pytest.skip)("axe-core: python -m tests.dashboard.axe")
    return SCRIPT


if __name__ == "__main__" and not SCRIPT.is_file():
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=FOLDER, check=True)
    (archive,) = FOLDER.glob("*.tgz")
    with tarfile.open(archive) as package:
        package.extract("package/axe.min.js", FOLDER, filter="data")
    print(f"axe-core is in {FOLDER}")
