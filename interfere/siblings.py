"""The packages beside this one, whose commands are found through entry points: checks that they are ours."""

from collections.abc import Callable
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from interfere.errors import UnfitError
from interfere.installation import HOME


def require_own(package: str) -> None:
    """Raise UnfitError when importing `package` would run somebody else's code; nothing is imported to find out."""
    spec = find_spec(package)
    folders = [Path(folder).resolve() for folder in (spec.submodule_search_locations or [])] if spec else []
    if folders != [HOME / package]:
        raise UnfitError(
            f"the package '{package}' on the import path is not interfere's own ({HOME / package})",
            value=", ".join(map(str, folders)) or "nothing found",
            remedy="run from another folder, or take that folder off PYTHONPATH",
        )


def sibling_function(entry: EntryPoint) -> Callable[..., Any]:
    """Import the function of an entry point. Raises UnfitError when its package is not ours."""
    require_own(entry.module.partition(".")[0])
    function: Callable[..., Any] = entry.load()
    return function
