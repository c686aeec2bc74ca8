"""The user's copy of the public files, for tests that read them."""

import os
from pathlib import Path

import pytest

HOW = "fetch the files that `interfere data sources` lists and name their folder in INTERFERE_DATA"
DATA = Path(os.environ.get("INTERFERE_DATA") or Path(__file__).resolve().parents[4] / "shared" / "data")


def public(name: str) -> Path:
    """`name` below the folder of public files, or a skip that says how to get it."""
    if not (DATA / name).exists():
        pytest.skip(f"no {DATA / name}: {HOW}")
    return DATA / name
