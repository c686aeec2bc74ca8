"""The console script as a user meets it: help, exit statuses, foreign folders, missing extras, errors as JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import interfere
from interfere.cli import PURPOSES, missing_library, registered_commands
from interfere.installation import HOME

NAMES = (
    "advise",
    "advise-copies",
    "agent",
    "audit",
    "data",
    "dashboard",
    "evaluate",
    "explain",
    "grants",
    "kubernetes",
    "match",
    "models",
    "observe",
    "onboard",
    "predict",
    "callers",
    "probe",
    "profile",
    "profiles",
    "promote",
    "quickstart",
    "replay",
    "retrain",
    "run",
    "scopes",
    "serve",
    "slurm",
    "store",
    "study",
    "timeline",
    "train",
    "tune",
    "ui",
    "watch",
    "whatif",
    "work",
)


def run(*arguments: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "interfere", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
        env={**os.environ, **environment},
        timeout=240,
    )


def import_path(*folders: Path) -> str:
    """PYTHONPATH that finds the given folders first, then the packages under test."""
    return os.pathsep.join(map(str, (*folders, HOME)))


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("help",)])
def test_help_names_every_command_once_with_its_line_under_a_purpose(arguments: tuple[str, ...]) -> None:
    done = run(*arguments, COLUMNS="200")
    assert done.returncode == 0
    sections = done.stdout.partition(f"{next(iter(PURPOSES))}:\n")[2].splitlines()
    # A purpose is not indented; a line that goes on is indented further than a name.
    starts = [line.split(maxsplit=1) for line in sections if line.startswith("  ") and not line.startswith("   ")]
    assert sorted(name for name, _ in starts) == sorted(NAMES) == sorted(registered_commands())
    assert all(len(text) > 10 and "unavailable" not in text for _, text in starts)


def test_the_first_screen_fits_a_terminal_and_its_commands_exist() -> None:
    done = run()
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 80
    named = {line.split()[1] for line in lines if line.startswith("  interfere ")}
    assert named
    assert named <= set(registered_commands())


def test_every_command_of_ours_has_a_purpose() -> None:
    purposes = [name for names in PURPOSES.values() for name in names]
    assert sorted(purposes) == sorted(NAMES)


def test_help_of_a_command_is_asked_either_way() -> None:
    assert run("help", "match").stdout == run("match", "--help").stdout


def test_version() -> None:
    assert run("--version").stdout == f"interfere {interfere.__version__}\n"


@pytest.mark.parametrize("arguments", [("nope",), ("serve", "--nope"), ("match",), ("profile", "pairs")])
def test_wrong_usage_exits_2_without_traceback(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("name", "remedy"), [("trian", "did you mean train?"), ("zzz", "one of advise, advise-copies")]
)
def test_an_unknown_command_has_a_remedy(name: str, remedy: str) -> None:
    done = run(name)
    assert f"no such command: {name}; {remedy}" in done.stderr


def test_help_and_completion_import_no_command() -> None:
    """Only what runs is imported: the list of commands costs no library of theirs."""
    code = (
        "import sys; from interfere.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted(name for name in sys.modules if '.commands.' in name or name in ('grpc', 'numpy', 'torch')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.splitlines()[-1] == "[]"


def test_somebody_elses_packages_on_the_import_path_change_nothing(tmp_path: Path) -> None:
    """Our packages are below the one name `interfere`: nobody's own `training` is hidden, run or in our way."""
    for package in ("training", "serving", "features"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('foreign code ran')")
    for command in ("evaluate", "promote"):
        done = run(command, "--help", folder=tmp_path, PYTHONPATH=import_path(tmp_path))
        assert done.returncode == 0, done.stderr
        assert "foreign code ran" not in done.stderr + done.stdout


def test_python_m_runs_ours_in_a_folder_with_somebody_elses_packages(tmp_path: Path) -> None:
    """`python -m` puts the current folder first on the import path; nothing in it is imported in place of ours."""
    for package in ("training", "serving", "features"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("open('proof', 'w').write('foreign code ran')")
    done = run("evaluate", "--data", "cpu", "--models", "nope", folder=tmp_path, PYTHONPATH=import_path())
    assert not (tmp_path / "proof").exists()
    assert "nope" in done.stderr  # our own command ran, and refused a model that it does not know
    listed = run("--help", folder=tmp_path, PYTHONPATH=import_path())
    assert "unavailable" not in listed.stdout
    assert "Train all models" in listed.stdout
    assert not (tmp_path / "proof").exists()


def test_an_error_is_one_json_document_with_json() -> None:
    done = run("data", "check", "/nowhere/at/all", "--json")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    document = json.loads(done.stdout)["error"]
    assert document["remedy"]
    assert "/nowhere/at/all" in json.dumps(document)


@pytest.mark.parametrize(
    ("library", "extra"), [("mlflow", "train"), ("onnxruntime.capi", "serve"), ("torch", "profile")]
)
def test_a_missing_library_names_its_extra(library: str, extra: str) -> None:
    text = str(missing_library(ModuleNotFoundError(f"No module named '{library}'", name=library)))
    assert f"'{library.partition('.')[0]}', which is not installed" in text
    assert "pip install" in text
    assert f"[{extra}]" in text


def test_a_missing_library_of_no_extra_is_named() -> None:
    assert "install ortools" in str(missing_library(ModuleNotFoundError("x", name="ortools")))


def test_a_reader_that_leaves_early_sees_no_traceback() -> None:
    command = f"{sys.executable} -m interfere --help | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=240)
    assert "Traceback" not in done.stderr


def complete(shell: str, line: str) -> list[str]:
    """What the completion protocol answers when the cursor stands at the end of `line`."""
    position = len(line.split(" ")) - 1
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(position)} if shell == "bash" else {"_TYPER_COMPLETE_ARGS": line}
    if shell == "fish":
        asked["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    done = run(_INTERFERE_COMPLETE=f"complete_{shell}", **asked)
    assert "Traceback" not in done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("interfere ma", ["match"]),
        ("interfere re", ["replay", "retrain"]),
        ("interfere match --ex", ["--example"]),
        ("interfere profile so", ["solo"]),
        ("interfere profile solo --wo", ["--work"]),
        ("interfere observe lo", ["log", "losses"]),
        ("interfere data import luc", ["lucid"]),
        ("interfere nope --", []),
    ],
)
def test_bash_completes_commands_and_options(line: str, answers: list[str]) -> None:
    found = complete("bash", line)
    assert sorted(found) == sorted(answers) or (not answers and "--example" not in found)


@pytest.mark.parametrize(
    ("shell", "form"),
    [("zsh", '"match":"Ask a server which pending job starts where'), ("fish", "match\tAsk a server")],
)
def test_zsh_and_fish_show_the_help_line_beside_the_name(shell: str, form: str) -> None:
    assert form in "\n".join(complete(shell, "interfere ma"))
    assert "--example" in "\n".join(complete(shell, "interfere match --ex"))


def test_a_real_bash_completes_with_the_shown_script(tmp_path: Path) -> None:
    shim = tmp_path / "interfere"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m interfere "$@"\n')
    shim.chmod(0o755)
    script = run("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1").stdout
    ask = 'COMP_WORDS=(interfere ma); COMP_CWORD=1; _interfere_completion interfere; echo "${COMPREPLY[@]}"'
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    shell = ["bash", "--norc", "-c", f"{script}\n{ask}"]
    done = subprocess.run(shell, capture_output=True, text=True, check=True, timeout=240, env={**os.environ, **path})
    assert done.stdout.split() == ["match"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(shell: str) -> None:
    done = run("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 0, done.stderr
    assert f"complete_{shell}" in done.stdout


def test_completion_is_installed_for_bash(tmp_path: Path) -> None:
    done = run("--install-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1", HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    (script,) = tmp_path.rglob("interfere.sh")
    assert "_INTERFERE_COMPLETE=complete_bash" in script.read_text()


def test_completion_never_runs_somebody_elses_folder(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "__init__.py").write_text("open('proof', 'w').write('foreign code ran')")
    asked = {"COMP_WORDS": "interfere train --da", "COMP_CWORD": "2", "_INTERFERE_COMPLETE": "complete_bash"}
    done = run(folder=tmp_path, PYTHONPATH=import_path(tmp_path), **asked)
    assert not (tmp_path / "proof").exists()
    assert "Traceback" not in done.stderr
