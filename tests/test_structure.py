"""No circle of imports between files, no crowded folder; and the finder of circles finds one."""

from pathlib import Path

from tests.structure import ROOT, calls_of, circles, crowded_folders, imports_of, single_readers, source_files

MAX_SINGLE_READERS = 24  # outside the packages that are being rebuilt
MAX_SINGLE_READERS_IN_ALL = 46
REBUILT = (
    "interfere.matching",
    "interfere.policy",
    "interfere.predict",
    "interfere.training.models",
    "interfere.training.beliefs",
    "interfere.training.groups",
)


SOLVERS = {"cholesky", "cho_factor", "cho_solve", "lstsq", "solve", "inv", "pinv"}


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circles(imports_of()) == []


def test_no_folder_holds_more_modules_than_a_reader_can_keep() -> None:
    assert crowded_folders() == {}


def test_few_modules_have_a_single_reader() -> None:
    """A module that one other module reads is a part of it; packages that are being rebuilt are counted apart."""
    found = single_readers(imports_of())
    outside = {name: reader for name, reader in found.items() if not name.startswith(REBUILT)}
    for modules, limit in ((outside, MAX_SINGLE_READERS), (found, MAX_SINGLE_READERS_IN_ALL)):
        assert len(modules) <= limit, "\n".join(f"{name} <- {reader}" for name, reader in modules.items())


def test_a_module_with_one_reader_is_found_and_one_with_two_is_not() -> None:
    imports = {
        "interfere": frozenset[str](),
        "interfere.a": frozenset({"interfere.b", "interfere.c"}),
        "interfere.b": frozenset({"interfere.c"}),
        "interfere.c": frozenset[str](),
    }
    assert single_readers(imports) == {"interfere.b": "interfere.a"}


def test_no_library_imports_the_command_line() -> None:
    """Only commands, the adapters' among them, and the console script stand on `interfere.commands`."""
    imports = imports_of()
    allowed = ("interfere.commands", "interfere.cli", "interfere.training.commands", "interfere.serving.commands")
    users = {
        name for name, targets in imports.items() if any(target.startswith("interfere.commands") for target in targets)
    }
    assert {name for name in users if not name.startswith(allowed)} == {
        "interfere.serving.adapters.slurm.command",
        "interfere.serving.adapters.kubernetes.command",
        "interfere.serving.adapters.node.agent",
    }
    assert {name for name, targets in imports.items() if "interfere.cli" in targets} == {"interfere.__main__"}


def test_one_algebra_of_beliefs() -> None:
    """Linear systems of effects are solved by the field; the Gaussian process and that of transfer have kernels."""
    believing = ("interfere/predict/", "interfere/monitoring/", "interfere/profiling/", "training/")
    allowed = ("interfere/predict/field/", "interfere/predict/transfer/process.py", "training/models/gp/model.py")
    # Published baselines are rebuilt as published, for comparison alone.
    allowed += ("training/baselines.py",)
    callers = {path.relative_to(ROOT).as_posix() for path in source_files() if calls_of(path) & SOLVERS}
    assert {path for path in callers if path.startswith(believing) and not path.startswith(allowed)} == set()


def test_calls_are_found_by_their_last_name(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import numpy as np\nx = np.linalg.solve(f(1), 2).sum()\n# inv(3)\n")
    assert calls_of(tmp_path / "a.py") == {"solve", "f", "sum"}


def test_imports_at_the_top_and_in_functions_count_those_for_types_do_not(tmp_path: Path) -> None:
    package = tmp_path / "interfere"
    (package / "inner").mkdir(parents=True)
    for name, text in {
        "__init__": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from interfere.a import x",
        "a": "from interfere.inner import b",
        "inner/__init__": "",
        "inner/b": "def load():\n    from ..c import thing\n    return thing",
        "c": "import interfere.a",
        "d": "import typing\nif typing.TYPE_CHECKING:\n    import interfere.a\nelse:\n    import interfere.e",
        "e": "import numpy",
    }.items():
        (package / f"{name}.py").write_text(text)
    imports = imports_of(tmp_path, ("interfere",))
    assert imports["interfere"] == frozenset()
    assert imports["interfere.d"] == {"interfere.e"}
    assert circles(imports) == [("interfere.a", "interfere.c", "interfere.inner.b")]
