"""Joins the device that the environment names as soon as the program has imported PyTorch.

Python runs this file at its start, in the program and in the processes that it starts. A program that never imports
PyTorch is left alone. Law: nothing here raises; what fails is one line on standard error, and the program goes on.
"""

import importlib.util
import os
import sys
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


class _JoinAfterImport:
    """A finder of modules that lets PyTorch be imported as usual, and then joins."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        """Return None for other modules, and for PyTorch the usual way to import it, then to join."""
        if name != "torch" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_join(module: ModuleType) -> None:
            load(module)
            try:
                from interfere.sharing.live import join_from_environment

                join_from_environment()
            except Exception as error:  # the program runs, whatever is wrong with its sharing
                sys.stderr.write(f"interfere: this process does not share its device by priority: {error}\n")

        spec.loader.exec_module = load_and_join  # type: ignore[method-assign]
        return spec


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
sys.meta_path.insert(0, _JoinAfterImport())
_this = sys.modules.pop("sitecustomize")
with suppress(ImportError):  # the site's own file of this name
    importlib.import_module("sitecustomize")
sys.modules.setdefault("sitecustomize", _this)  # whoever imports this file looks for it there
