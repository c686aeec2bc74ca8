"""The example package, installed beside ours as pip does it: found, named, used, and held to the conformance suites."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interfere import Device, Job, PolicyClient, Snapshot
from interfere.installation import HOME
from tests.packaging.conftest import ROOT, pip

RATES = "job,neighbour,device,iterations_per_s\nresnet,,a100,10.0\nbert,,a100,4.0\nresnet,bert,a100,8.0\n"
BROKEN = {
    "model": "interfere.models",
    "importer": "interfere.importers",
    "objective": "interfere.objectives",
    "rule": "interfere.rules",
    "store": "interfere.stores",
    "engine": "interfere.engines",
    "command": "interfere.commands",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed example, and a distribution of which everything is broken."""
    folder = tmp_path_factory.mktemp("extension")
    shutil.copytree(ROOT / "examples" / "extension", folder / "source")  # building leaves files in the source
    installed = folder / "site"
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(installed))
    pip(sys.executable, "install", *options, str(folder / "source"))
    metadata = installed / "broken_extension-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-extension\nVersion: 1\n")
    entries = (f"[{group}]\nbroken-{kind} = broken_extension:thing\n" for kind, group in BROKEN.items())
    (metadata / "entry_points.txt").write_text("\n".join(entries))
    (installed / "broken_extension.py").write_text('"""Cannot be imported."""\nimport no_such_library\n')
    return installed


def run(site: Path, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(site), str(HOME)))
    environ = {**os.environ, "PYTHONPATH": path, "COLUMNS": "250", **variables}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environ, timeout=600, check=False)


def interfere(site: Path, folder: Path, *arguments: str) -> str:
    """Standard output of a command that must succeed."""
    done = run(site, folder, "interfere", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_passes_the_conformance_suites(site: Path, tmp_path: Path) -> None:
    tests = site.parent / "source" / "tests"
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:kmock", "-c", os.devnull, "--rootdir", str(tests))
    done = run(site, tmp_path, "pytest", *options, str(tests))
    assert done.returncode == 0, done.stdout[-3000:]


def test_everything_is_named_in_help_and_works(site: Path, tmp_path: Path) -> None:
    shown = interfere(site, tmp_path, "--help")
    for name in ("forest", "lab", "longest-wait", "folder", "threads", "one-tenant", "smallest", "tail", "worst"):
        assert f"example-{name}" in shown
    assert "Print the worst pair of a table" in shown
    assert "example-forest" in interfere(site, tmp_path, "evaluate", "--help")
    assert "example-lab" in interfere(site, tmp_path, "data", "import", "--help")
    assert interfere(site, tmp_path, "example-worst", "cpu").startswith("gnn-train beside stream: 2.7")
    (tmp_path / "rates.csv").write_text(RATES)
    interfere(site, tmp_path, "data", "import", "example-lab", "rates.csv", "--out", "lab")
    by_reference = ("interfere_example.importer:import_lab", "rates.csv", "--out", "again")
    interfere(site, tmp_path, "data", "import", *by_reference)
    for table in ("lab", "again"):
        (read,) = json.loads(interfere(site, tmp_path, "data", "check", table, "--json"))["tables"]
        assert read["pairs"] == 1


def test_its_models_split_and_column_stand_on_the_board(site: Path, tmp_path: Path) -> None:
    options = ("--data", "cpu", "--facts", "all", "--models", "example-forest,victim-mean,mean", "--json")
    own = ("--split", "example-slowest", "--feature", "example-same-family", "--engine", "example-threads")
    board = json.loads(interfere(site, tmp_path, "evaluate", *options, *own))
    errors = {model["name"]: model["mae"] for model in board["models"]}
    assert errors["example-forest"] < errors["mean"]
    assert "victim-mean" in errors


def test_a_server_uses_its_store_objective_and_rule_where_its_settings_name_them(site: Path, tmp_path: Path) -> None:
    settings = {
        "INTERFERE_DATABASE": f"example-folder://{tmp_path}/held",
        "INTERFERE_OBJECTIVES": "example-longest-wait",
        "INTERFERE_RULES": "example-one-tenant",
        "INTERFERE_WORK": str(tmp_path / "work"),
    }
    default = {"INTERFERE_OBJECTIVE": "example-longest-wait", "INTERFERE_DECISION_WORKERS": "0"}
    alone = {
        "named": started_alone(site, tmp_path / "named", settings, "example-longest-wait"),
        "default": started_alone(site, tmp_path / "default", default),
        "none": started_alone(site, tmp_path / "none", {}),
    }
    assert alone == {"named": ["gemm"], "default": ["gemm"], "none": ["gpt-decode"]}
    tenants = started_alone(site, tmp_path / "tenants", settings, tenants=("a", "b", "c"))
    assert len(tenants) == 2  # nobody shares: two start, the third waits
    assert (tmp_path / "held" / "interfere.db").is_file()


def started_alone(
    site: Path, folder: Path, settings: dict[str, str], objective: str = "", tenants: tuple[str, ...] = ("one",) * 3
) -> list[str]:
    """The jobs that a server starts alone, of three on two devices: the longest waiting one under the objective."""
    folder.mkdir()
    waited_s = {"gemm": 86_400.0, "request-server": 60.0, "gpt-decode": 60.0}
    pending = tuple(
        Job(id=f"{tenant}/{name}", workload=name, elapsed_s=seconds)
        for (name, seconds), tenant in zip(waited_s.items(), tenants, strict=True)
    )
    devices = tuple(Device(id=name, type="cpu-core") for name in ("d0", "d1"))
    snapshot = Snapshot(pending=pending, devices=devices, objective_name=objective)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(HOME))), **settings}
    command = [sys.executable, "-m", "interfere", "serve", "--port", "0", "--json"]
    server = subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["address"]
        with PolicyClient(address, timeout_s=120.0) as client:
            client.wait_ready()
            actions = client.match(snapshot).actions
        return [each.job_id.partition("/")[2] for each in actions if each.kind == "start_alone"]
    finally:
        server.terminate()
        server.wait(30)


def test_a_broken_package_is_named_and_harms_nothing(site: Path, tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text(RATES)
    evaluate = ("evaluate", "--data", "cpu", "--split", "pair", "--facts", "all")
    asked = {
        "model": (*evaluate, "--models", "broken-model"),
        "engine": (*evaluate, "--models", "mean", "--engine", "broken-engine"),
        "importer": ("data", "import", "broken-importer", "rates.csv", "--out", "out"),
        "command": ("broken-command",),
    }
    for kind, arguments in asked.items():
        done = run(site, tmp_path, "interfere", *arguments)
        assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
        assert f"the {kind} 'broken-{kind}' of the package broken-extension cannot be loaded" in done.stderr
        assert "no_such_library" in done.stderr
    for kind, variable, setting in (
        ("objective", "OBJECTIVE", "broken-objective"),
        ("objective", "OBJECTIVES", "broken-objective"),
        ("rule", "RULES", "broken-rule"),
        ("store", "DATABASE", "broken-store://x"),
    ):
        variables = {f"INTERFERE_{variable}": setting}
        done = run(site, tmp_path, "interfere", "serve", "--port", "0", **variables)
        assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
        assert f"the {kind} 'broken-{kind}' of the package broken-extension cannot be loaded" in done.stderr
    assert "broken-command" in interfere(site, tmp_path, "--help")
    assert interfere(site, tmp_path, "example-worst", "cpu")
