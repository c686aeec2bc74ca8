"""Keeps the paths of the server's machine out of what clients are told; logs keep them."""

import copy
import re
from pathlib import PurePath
from typing import TypeVar

from interfere.errors import InterfereError

E = TypeVar("E", bound=InterfereError)
# An absolute path of at least two names, at the start of a word. A workload named `team/job` is none.
_PATH = re.compile(r"(?<![\w./~-])/(?:[^\s/'\"<>:;,()]+/)+[^\s/'\"<>:;,()]*")


def without_paths(text: str) -> str:
    """Return a text in which each absolute path is shortened to its last name: `…/manifest.json`."""
    return _PATH.sub(lambda found: f"…/{PurePath(found[0]).name}", text)


def error_without_paths(error: E) -> E:
    """Return an error of the same kind whose texts name no absolute path."""
    if not _PATH.search(str(error)):
        return error
    shortened = copy.copy(error)
    shortened.args = (without_paths(str(error)),)
    shortened.what, shortened.remedy = without_paths(error.what), without_paths(error.remedy)
    shortened.value = None if error.value is None else without_paths(str(error.value))
    return shortened
