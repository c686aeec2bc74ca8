"""What the tests against a stand-in need; a skip names its reason, and is a failure where REQUIRE_ALL is set."""

import os
from importlib.util import find_spec

import pytest


def need_kmock() -> None:
    """Skip a module of tests where kmock, the official client or CEL is missing."""
    missing = [name for name in ("kmock", "kubernetes", "cel_expr_python") if find_spec(name) is None]
    if missing and os.environ.get("REQUIRE_ALL"):
        raise ModuleNotFoundError(f"{', '.join(missing)}: pip install -e '.[dev]'")
    if missing:
        pytest.skip(f"missing: {', '.join(missing)} (pip install -e '.[dev]')", allow_module_level=True)
