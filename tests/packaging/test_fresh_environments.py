"""The wheel in fresh environments, bare, with [serve], and with what the image installs: commands run, a client plans,
and nothing heavy came along.

The Python of the tests is tried at every landing; with SOAK_ROUNDS (`make soak`) every Python of 3.11 and newer that
pyenv or the path offers.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, pip

EXAMPLE = """
from interfere import Device, Job, PolicyClient, Snapshot
import sys
with PolicyClient(sys.argv[1]) as client:
    client.wait_ready()
    queue = (Job(id="j1", workload="gemm"), Job(id="j2", workload="request-server"))
    plan = client.match(Snapshot(pending=queue, devices=(Device(id="d0", type="cpu-core"),)))
    print(len(plan.actions), plan.status)
"""
IMAGE = ROOT / "deploy" / "image"
INSTALL = ("install", "--quiet", "--no-compile")  # a module is compiled when it is first imported
HEAVY = {"torch", "mlflow", "lightgbm", "pandas", "pyarrow"}


def pythons() -> list[str]:
    """The interpreters to try, one for each minor version."""
    found = {sys.version_info[:2]: sys.executable}
    if "SOAK_ROUNDS" in os.environ:
        folders = [*Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.*/bin")]
        folders += [Path(folder) for folder in os.environ["PATH"].split(":") if "shims" not in folder]
        for folder in folders:
            for path in folder.glob("python3.*"):
                match = re.fullmatch(r"python3\.(\d+)", path.name)
                if match and int(match[1]) >= 11:
                    found.setdefault((3, int(match[1])), str(path))
    return [found[version] for version in sorted(found)]


def new_environment(python: str, folder: Path) -> Path:
    """Make a virtual environment without packages; return the folder of its programs. The pip of the tests fills it."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin"


def environment(python: str, folder: Path, wheel: Path, extra: str) -> Path:
    """Make a virtual environment with the wheel; return the folder of its programs."""
    programs = new_environment(python, folder)
    requirement = f"interfere-gpu{extra} @ {wheel.as_uri()}"
    pip(programs / "python", *INSTALL, "--constraint", str(ROOT / "constraints.txt"), requirement)
    return programs


def locked_environment(python: str, folder: Path, wheel: Path) -> Path:
    """Make a virtual environment as the image's build does; return the folder of its programs."""
    programs = new_environment(python, folder)
    hashed = ("--require-hashes", "--only-binary=:all:", "-r", str(IMAGE / "requirements.lock"))
    pip(programs / "python", *INSTALL, *hashed)
    pip(programs / "python", *INSTALL, "--no-deps", str(wheel))
    pip(programs / "python", "check")
    return programs


def run(*command: str | Path, folder: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=clean,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("python", pythons())
def test_a_client_of_the_bare_install_plans_with_a_server_of_the_serving_one(
    python: str, wheel: Path, tmp_path: Path
) -> None:
    bare = environment(python, tmp_path / "bare", wheel, "")
    serving = environment(python, tmp_path / "serving", wheel, "[serve]")
    plan_with(bare, serving, tmp_path)
    missing = subprocess.run([bare / "interfere", "serve"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert missing.returncode == 1
    assert "interfere-gpu[serve]" in missing.stderr


@pytest.mark.timeout(1800)
def test_the_locked_files_serve_and_are_told_in_a_bill_of_materials(wheel: Path, tmp_path: Path) -> None:
    serving = locked_environment(sys.executable, tmp_path / "serving", wheel)
    plan_with(serving, serving, tmp_path)
    tools = new_environment(sys.executable, tmp_path / "build")
    pip(tools / "python", *INSTALL, "--require-hashes", "-r", str(IMAGE / "build.lock"))
    told = tmp_path / "sbom.json"  # the tool validates it against the schema of CycloneDX before it writes it
    options = ("--validate", "--pyproject", str(ROOT / "pyproject.toml"), "--output-file", str(told))
    run(tools / "cyclonedx-py", "environment", *options, serving / "python", folder=tmp_path)
    document = json.loads(told.read_text())
    assert (document["bomFormat"], document["metadata"]["component"]["name"]) == ("CycloneDX", "interfere-gpu")
    listed = json.loads(pip(serving / "python", "list", "--format", "json"))
    installed = {(row["name"].lower(), row["version"]) for row in listed if row["name"] != "interfere-gpu"}
    assert {(part["name"].lower(), part["version"]) for part in document["components"]} == installed


def plan_with(client: Path, serving: Path, tmp_path: Path) -> None:
    """A server of one environment starts, with nothing heavy installed, and a client of the other plans with it."""
    assert run(client / "interfere", "--version", folder=tmp_path).startswith("interfere ")
    listed = json.loads(pip(serving / "python", "list", "--format", "json"))
    assert not HEAVY & {row["name"].lower() for row in listed}
    server = subprocess.Popen(
        [serving / "interfere", "serve", "--port", "0", "--json", "--store", str(tmp_path / "store.db")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        address = json.loads(server.stdout.readline() if server.stdout else "")["address"]
        n_actions, status = run(client / "python", "-c", EXAMPLE, address, folder=tmp_path).split()
        assert (int(n_actions), status) == (2, "OPTIMAL")
        help_page = run(client / "interfere", "--help", folder=tmp_path)
        assert "unavailable" not in help_page
    finally:
        server.terminate()
        server.wait(timeout=60)
