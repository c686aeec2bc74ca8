"""What `import interfere` gives: cheap to import, typed, and every example in its docstrings runs."""

import ast
import doctest
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import interfere
from interfere.config import SHIPPED_MODEL, Settings
from interfere.serving.server import RunningServer, start_server

ADDRESS = "127.0.0.1:50051"  # in the texts
NAMES = [name for name in interfere.__all__ if name != "__version__"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of the shipped model, as `interfere serve` starts it after an installation."""
    server = start_server(Settings(model=SHIPPED_MODEL, work=tmp_path_factory.mktemp("face"), port=0))
    yield server
    server.stop()


@pytest.mark.parametrize("name", NAMES)
def test_the_example_in_the_docstring_runs(name: str, server: RunningServer) -> None:
    text = (getattr(interfere, name).__doc__ or "").replace(ADDRESS, server.address)
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    assert example.examples, f"{name} has no example in its docstring"
    output: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(example, out=output.append)
    assert result.failed == 0, "".join(output)


def test_import_loads_nothing_of_ours_and_no_library() -> None:
    code = "import sys; before = set(sys.modules); import interfere; dir(interfere); print(set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    top_level = {name.partition(".")[0] for name in ast.literal_eval(done.stdout)}
    assert top_level - set(sys.stdlib_module_names) == {"interfere"}
    assert not [name for name in ast.literal_eval(done.stdout) if name.startswith("interfere.")]


def test_every_name_is_listed_found_and_typed() -> None:
    tree = ast.parse(Path(interfere.__file__).read_text(encoding="utf-8"))
    (typed,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = {
        alias.name: node.module for node in typed.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imports == interfere._MODULE_OF
    assert sorted(imports) == sorted(NAMES)
    assert set(interfere.__all__) <= set(dir(interfere))
    for name in NAMES:
        assert f"`{name}`" in (interfere.__doc__ or "")


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        interfere.nope  # noqa: B018
    with pytest.raises(ImportError):
        exec("from interfere import nope")


def test_submodules_are_imported_as_before() -> None:
    from interfere import progress

    assert callable(progress.step)
