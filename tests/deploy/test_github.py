"""The files that GitHub reads: each fits its schema, and what the workflows run is what a developer runs."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import interfere

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", WORKFLOWS),
        ("github-issue-forms", FORMS),
        ("github-issue-config", [GITHUB / "ISSUE_TEMPLATE" / "config.yml"]),
        ("dependabot", [GITHUB / "dependabot.yml"]),
    ],
)
def test_a_file_fits_its_schema(schema: str, files: list[Path]) -> None:
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    command += ["--force-filetype", "yaml", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


def jobs() -> list[tuple[str, dict[str, Any]]]:
    """(name of the workflow's file, job) of all jobs of all workflows."""
    return [(path.name, job) for path in WORKFLOWS for job in read(path)["jobs"].values()]


def commands(job: dict[str, Any]) -> list[str]:
    """Each line that a job runs."""
    return [line.strip() for step in job["steps"] for line in step.get("run", "").splitlines() if line.strip()]


def test_workflows_run_targets_of_make_and_the_script_of_ci_alone() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    run = [line for _, job in jobs() for line in commands(job)]
    assert {"make check", "make test", "make soak", ".ci/run"} <= set(run)
    assert [line for line in run if line != ".ci/run" and line.removeprefix("make ") not in targets] == []


def test_every_job_ends_in_time_and_may_only_read() -> None:
    assert [name for name, job in jobs() if "timeout-minutes" not in job] == []
    rights = {path.name: read(path)["permissions"] for path in WORKFLOWS}
    assert {name: right for name, right in rights.items() if right != {"contents": "read"}} == {
        "site.yml": {"contents": "read", "pages": "write", "id-token": "write"}
    }


def test_each_supported_python_is_tested() -> None:
    pull_request = read(GITHUB / "workflows" / "pull-request.yml")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    supported = re.findall(r"Programming Language :: Python :: (3\.\d+)", project)
    assert pull_request["jobs"]["test"]["strategy"]["matrix"]["python"] == supported


def test_files_that_jobs_name_exist() -> None:
    named = [job["env"]["CONSTRAINTS"] for _, job in jobs() if "CONSTRAINTS" in job.get("env", {})]
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_citation_is_of_this_version() -> None:
    assert read(GITHUB / "CITATION.cff")["version"] == interfere.__version__
