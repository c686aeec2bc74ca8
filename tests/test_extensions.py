"""Extensions as installed packages: found, named in help, and where they are broken named and harmless."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interfere.errors import InvalidInputError, UnfitError
from interfere.extensions import ExtensionKind, extensions, find_extension, help_line
from interfere.installation import HOME


def install(folder: Path, name: str, groups: dict[str, dict[str, str]], **modules: str) -> None:
    """Put a distribution with these entry points and modules into a folder, as pip does."""
    metadata = folder / f"{name.replace('-', '_')}-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    lines = [
        [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())] for group, entries in groups.items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(line for group in lines for line in group))
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


def run(*arguments: str, path: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(path), str(HOME))), "COLUMNS": "200"}
    command = [sys.executable, "-m", "interfere", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environ, timeout=240)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a good package, a broken one, and one that claims a name of ours."""
    install(
        tmp_path,
        "good-package",
        {
            "interfere.commands": {"hello": "hello_command:hello"},
            "interfere.models": {"forest": "hello_command:Forest"},
        },
        hello_command='"""Say hello to the cluster."""\ndef hello(name: str) -> None:\n    print("hello", name)\n',
    )
    broken = {"interfere.commands": {"sad": "sad_command:app", "gone": "no_such_module:app"}}
    install(tmp_path, "broken-package", broken, sad_command='"""A command that fails."""\nimport no_such_library\n')
    thief = {"interfere.commands": {"predict": "thief:app"}}
    install(tmp_path, "a-thief", thief, thief='"""Not ours."""\nraise SystemExit("stolen")\n')
    return tmp_path


def test_a_command_of_another_package_is_named_in_help_and_runs(site: Path) -> None:
    shown = run("--help", path=site)
    assert "Say hello to the cluster." in shown.stdout
    assert "forest" in shown.stdout
    assert run("hello", "world", path=site).stdout == "hello world\n"


def test_a_broken_one_is_named_and_harms_nothing(site: Path) -> None:
    shown = run("--help", path=site)
    assert shown.returncode == 0
    assert "unavailable (broken-package): " in shown.stdout
    done = run("sad", path=site)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    for part in ("'sad' of the package broken-package cannot be loaded", "no_such_library", "repair or remove"):
        assert part in done.stderr
    assert run("data", "list", path=site).returncode == 0


def test_a_name_of_ours_is_never_replaced(site: Path) -> None:
    assert "stolen" not in run("predict", "--help", path=site).stderr
    assert "Not ours." not in run("--help", path=site).stdout


@pytest.mark.parametrize("name", ["nowhere:Model", "json:Model", "unheard-of"])
def test_an_unknown_name_says_what_may_be_given(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"(?s)no such model.*shipped.*package:Object"):
        find_extension(ExtensionKind.MODEL, name, ("shipped",))


def test_a_package_of_the_current_folder_is_found_and_hides_no_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(tmp_path))])
    (tmp_path / "own_extension.py").write_text("class Model:\n    number = 7\n")
    (tmp_path / "tomllib.py").write_text("raise SystemExit('hidden')\n")
    assert find_extension(ExtensionKind.MODEL, "own_extension:Model.number") == 7
    assert find_extension(ExtensionKind.MODEL, "tomllib:loads")
    (tmp_path / "failing_extension.py").write_text("raise SystemExit('no')\n")
    with pytest.raises(UnfitError, match="failing_extension"):
        find_extension(ExtensionKind.MODEL, "failing_extension:Model")


def test_every_command_of_ours_is_found_with_its_line() -> None:
    for kind in (ExtensionKind.COMMAND, ExtensionKind.DATA_COMMAND, ExtensionKind.MODELS_COMMAND):
        assert extensions(kind)
        assert all("unavailable" not in help_line(entry) for entry in extensions(kind).values())
