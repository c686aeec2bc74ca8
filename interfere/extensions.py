"""What other packages add: extensions, found by the name of a Python entry point, and imported only when they are used.

Each kind of extension is one group of entry points. Wherever such a name is taken, `package:Object` names an object
that is registered nowhere; a package in the current folder is found too.

Law 1: a name of interfere's own is never replaced by that of another package.
Law 2: an extension that cannot be loaded raises an error that names it and its distribution, and harms no other.
"""

import ast
import sys
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from interfere.errors import InterfereError, InvalidInputError, UnfitError
from interfere.installation import DISTRIBUTION


class ExtensionKind(StrEnum):
    """The kinds of extensions; the value is the group of entry points."""

    COMMAND = "interfere.commands"
    DATA_COMMAND = "interfere.commands.data"
    MODELS_COMMAND = "interfere.commands.models"
    MODEL = "interfere.models"
    FEATURE = "interfere.features"
    SPLIT = "interfere.splits"
    IMPORTER = "interfere.importers"
    OBJECTIVE = "interfere.objectives"
    RULE = "interfere.rules"
    STORE = "interfere.stores"
    ENGINE = "interfere.engines"
    SCHEDULER = "interfere.schedulers"
    QUESTION = "interfere.questions"

    @property
    def noun(self) -> str:
        """What one extension of the kind is called in messages."""
        return "command" if self.name.endswith("COMMAND") else self.name.lower()


@cache
def extensions(kind: ExtensionKind) -> dict[str, EntryPoint]:
    """Return the entry points of a kind by name, in the order of their registration, interfere's own first."""
    by_name: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=kind), key=lambda entry: not is_own(entry)):
        by_name.setdefault(entry.name, entry)
    return by_name


def is_own(entry: EntryPoint) -> bool:
    """Tell whether interfere itself registers an entry point."""
    return entry.dist is not None and entry.dist.name == DISTRIBUTION


def is_reference(name: str) -> bool:
    """Tell whether a name is `package:Object`, which names an object that no entry point registers."""
    module, _, attribute = name.partition(":")
    return bool(attribute) and all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))


def find_extension(kind: ExtensionKind, name: str, shipped: Iterable[str] = ()) -> Any:
    """Return the registered object of this name, or the object that `package:Object` names.

    `shipped` are the names that the caller knows itself, for the message. Raises InvalidInputError for an unknown name,
    UnfitError where the object cannot be loaded.
    """
    if not is_reference(name) and name not in extensions(kind):
        raise _unknown(kind, name, shipped)
    if name in extensions(kind):
        return load_extension(extensions(kind)[name], kind)
    try:
        return _load(EntryPoint(name=name, value=name, group=kind), kind)
    except UnfitError as error:
        package, cause = name.partition(":")[0].partition(".")[0], error.__cause__
        if isinstance(cause, AttributeError) or (isinstance(cause, ModuleNotFoundError) and cause.name == package):
            raise _unknown(kind, f"{name}: {cause}", shipped) from None
        raise


def _unknown(kind: ExtensionKind, value: str, shipped: Iterable[str]) -> InvalidInputError:
    known = extension_names(kind, *shipped)
    remedy = f"choose among {known}, or give package:Object" if known else "give package:Object of a package"
    return InvalidInputError(f"no such {kind.noun}", value=value, remedy=remedy)


def load_extension(entry: EntryPoint, kind: ExtensionKind) -> Any:
    """Return the object of an entry point. Raises UnfitError where another package's object cannot be loaded."""
    return entry.load() if is_own(entry) else _load(entry, kind)


def load_or_explain(entry: EntryPoint, kind: ExtensionKind) -> Any:
    """Return the object of an entry point; for a broken one of another package a function that raises its error."""
    try:
        return load_extension(entry, kind)
    except UnfitError as error:
        broken = error

    def explain() -> None:
        """Raise the error."""
        raise broken

    return explain


def _load(entry: EntryPoint, kind: ExtensionKind) -> Any:
    package = "" if entry.dist is None else f" of the package {entry.dist.name}"
    try:
        found: Any = _import(entry.module)
        for attribute in entry.attr.split(".") if entry.attr else ():
            found = getattr(found, attribute)
    except (InterfereError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a package that calls sys.exit() when it is imported is broken too
        raise UnfitError(
            f"the {kind.noun} '{entry.name}'{package} cannot be loaded",
            value=f"{entry.value}: {type(error).__name__}: {error}",
            remedy=f"repair or remove{package or f' {entry.module}'}",
        ) from error
    return found


def _import(module: str) -> Any:
    """Return a module, of an installed package or else of one in the current folder."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        here = str(Path.cwd())
        if error.name != module.partition(".")[0] or here in sys.path:
            raise
        sys.path.append(here)  # last: nothing there hides an installed package; processes that are spawned get it too
        return import_module(module)


# --- help, without running any code of the extension -----------------------------------------------------------------


def module_path(entry: EntryPoint) -> Path:
    """Return the file of an extension's module without importing it. Raises UnfitError when no package holds it."""
    package, *inner = entry.module.split(".")
    spec = find_spec(package)  # of a top-level package: found without running any of its code
    if spec is None or not (spec.origin or spec.submodule_search_locations):
        raise UnfitError(f"the package of '{entry.name}' is not installed", value=package)
    if spec.submodule_search_locations is None:
        return Path(str(spec.origin))  # a single file
    paths = [Path(folder, *inner) for folder in spec.submodule_search_locations]  # several of a namespace package
    files = [file for path in paths for file in (path.with_suffix(".py"), path / "__init__.py")]
    return next((file for file in files if file.is_file()), files[0])


def help_line(entry: EntryPoint) -> str:
    """Return the first docstring line of an extension's module, read without importing it."""
    try:
        text = ast.get_docstring(ast.parse(module_path(entry).read_text(encoding="utf-8"))) or ""
    except (InterfereError, OSError, SyntaxError, ValueError) as error:
        package = f" ({entry.dist.name})" if entry.dist is not None and not is_own(entry) else ""
        return f"unavailable{package}: {error}".splitlines()[0]
    return text.partition("\n")[0]


def extension_names(kind: ExtensionKind, *shipped: str) -> str:
    """Return the names that may be given for a kind, for help lines: the shipped ones, then those of other packages."""
    return ", ".join((*shipped, *(name for name in extensions(kind) if name not in shipped)))


def other_extensions() -> list[tuple[ExtensionKind, str, EntryPoint]]:
    """Return kind, name and entry point of everything that other packages add, commands left out."""
    kinds = [kind for kind in ExtensionKind if not kind.name.endswith("COMMAND")]
    return [(kind, name, entry) for kind in kinds for name, entry in extensions(kind).items() if not is_own(entry)]
