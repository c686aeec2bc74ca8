"""interfere: what happens when GPU jobs share a device, and what a scheduler should do about it.

What a scheduler or a notebook imports, each with an example in its docstring:

- `PolicyClient` asks a server for predictions and decisions, and reports what was measured.
- `Job`, `JobSize`, `Device`, `Limits` and `Snapshot` say what is pending and running, and what a decision may do.
- `Plan`, `Action` and `ActionKind` are the decision; `Progress` reports how fast a job ran.
- `JobProfile` and `KernelStat` hold the facts about a job; `load_table` reads a table of measurements, and
  `import_spreadsheet` makes one of a file or DataFrame of yours.
- `match_pairs` finds the cheapest pairing by a matrix of costs, with a proof.
- `InterfereError` is the base of every error that is raised on purpose (`interfere.errors` has the tree).

Importing interfere imports nothing else: every name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interfere.client import PolicyClient
    from interfere.data.importers.spreadsheet.own_table import import_spreadsheet
    from interfere.data.loading import load_table
    from interfere.errors import InterfereError
    from interfere.matching.pairs import match_pairs
    from interfere.records import (
        Action,
        ActionKind,
        Device,
        Job,
        JobProfile,
        JobSize,
        KernelStat,
        Limits,
        Plan,
        Progress,
        Snapshot,
    )

__version__ = "0.1.0"

__all__ = [
    "Action",
    "ActionKind",
    "Device",
    "InterfereError",
    "Job",
    "JobProfile",
    "JobSize",
    "KernelStat",
    "Limits",
    "Plan",
    "PolicyClient",
    "Progress",
    "Snapshot",
    "__version__",
    "import_spreadsheet",
    "load_table",
    "match_pairs",
]

_MODULES = {
    "interfere.client": ("PolicyClient",),
    "interfere.data.importers.spreadsheet.own_table": ("import_spreadsheet",),
    "interfere.data.loading": ("load_table",),
    "interfere.errors": ("InterfereError",),
    "interfere.matching.pairs": ("match_pairs",),
    "interfere.records": (
        *("Action", "ActionKind", "Device", "Job", "JobProfile", "JobSize", "KernelStat", "Limits", "Plan"),
        *("Progress", "Snapshot"),
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

if not TYPE_CHECKING:  # a type checker knows the names from the imports above, and only those

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used (PEP 562)."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'interfere' has no attribute '{name}'")
        value = getattr(import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
