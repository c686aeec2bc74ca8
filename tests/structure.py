"""Find circles of imports, modules with one reader, and folders with too many modules, from the source alone."""

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("interfere", "features", "training", "serving")  # folders of the repository
LINKED = PACKAGES[1:]  # installed and imported as interfere.features, interfere.training, interfere.serving
GENERATED = "interfere/v1"
MAX_MODULES = 15  # in one folder, `__init__` not counted

Imports = Mapping[str, frozenset[str]]
"""Module → the modules of ours that it imports, at its top or inside a function."""


def source_files(root: Path = ROOT, packages: Iterable[str] = PACKAGES) -> list[Path]:
    """Return every module's file below the packages, generated code left out."""
    return [
        path
        for package in packages
        for path in sorted((root / package).rglob("*.py"))
        if not path.relative_to(root).as_posix().startswith(GENERATED)
    ]


def module_name(path: Path, root: Path = ROOT) -> str:
    """Return the dotted name under which a file is imported."""
    parts = path.relative_to(root).with_suffix("").parts
    names = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(("interfere", *names) if parts[0] in LINKED else names)


@cache  # the same tree is read once, whichever tests ask
def imports_of(root: Path = ROOT, packages: tuple[str, ...] = PACKAGES) -> dict[str, frozenset[str]]:
    """Return what every module imports when it is loaded or run; imports for the type checker alone do not count."""
    files = {module_name(path, root): path for path in source_files(root, packages)}
    return {name: frozenset(_imported(name, path, files)) for name, path in files.items()}


def calls_of(path: Path) -> set[str]:
    """Return the last name of every function that a module calls: `solve` for `numpy.linalg.solve(...)`."""
    called = (node.func for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    return {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in called}


def _imported(name: str, path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in _nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            # `from package import module` imports the module, `from package import name` the package itself.
            targets = [f"{origin}.{a.name}" if f"{origin}.{a.name}" in files else origin for a in node.names]
        else:
            continue
        yield from (target for target in targets if target in files and target != name)


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree without the blocks `if TYPE_CHECKING:`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            yield from (inner for branch in node.orelse for inner in (branch, *_nodes(branch)))
            continue
        yield node
        yield from _nodes(node)


def circles(imports: Imports) -> list[tuple[str, ...]]:
    """Return the groups of modules that import each other in a circle: Tarjan's strongly connected components."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[tuple[str, ...]] = []

    def visit(module: str) -> None:
        index[module] = lowest[module] = len(index)
        stack.append(module)
        for target in sorted(imports.get(module, ())):
            if target not in index:
                visit(target)
                lowest[module] = min(lowest[module], lowest[target])
            elif target in stack:
                lowest[module] = min(lowest[module], index[target])
        if lowest[module] == index[module]:
            component = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(component) > 1:
                found.append(tuple(sorted(component)))

    for module in sorted(imports):
        if module not in index:
            visit(module)
    return found


def single_readers(imports: Imports) -> dict[str, str]:
    """Return the modules that exactly one other module imports, and that module: each is a part of its reader.

    A package's `__init__` does not count, nor does a program, which is run rather than imported: by its name, or by an
    entry point of pyproject.toml.
    """
    readers: dict[str, set[str]] = {}
    for name, targets in imports.items():
        for target in targets:
            readers.setdefault(target, set()).add(name)
    packages = {name.rpartition(".")[0] for name in imports}
    return {
        name: next(iter(names))
        for name, names in sorted(readers.items())
        if len(names) == 1 and name not in packages and not _is_program(name)
    }


def _is_program(name: str) -> bool:
    folders = name.split(".")
    if folders[1:2] and folders[1] in LINKED:
        folders = folders[1:]
    path = ROOT.joinpath(*folders).with_suffix(".py")
    if name in _entry_points():
        return True
    return path.is_file() and '\nif __name__ == "__main__":' in path.read_text(encoding="utf-8")


@cache
def _entry_points() -> frozenset[str]:
    """Return the modules that pyproject.toml names as scripts or entry points."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = (project["scripts"], *project["entry-points"].values())
    return frozenset(entry.partition(":")[0] for group in groups for entry in group.values())


def crowded_folders(root: Path = ROOT, packages: Iterable[str] = PACKAGES) -> dict[str, int]:
    """Return the folders with more than `MAX_MODULES` modules, and how many they have."""
    counts: dict[str, int] = {}
    for path in source_files(root, packages):
        if path.name != "__init__.py":
            folder = path.parent.relative_to(root).as_posix()
            counts[folder] = counts.get(folder, 0) + 1
    return {folder: count for folder, count in counts.items() if count > MAX_MODULES}
