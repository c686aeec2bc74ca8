"""The two definitions of the image agree with one another, with the chart and with the guide; neither runs as root.

What they install comes from lock files that name the tested versions, with hashes.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.tools import ROOT

IMAGE = ROOT / "deploy" / "image"
USER = "65532:65532"  # the chart's runAsUser and runAsGroup
PROGRAM = "/opt/interfere/bin/interfere"


def instructions() -> list[tuple[str, str]]:
    """Instruction and arguments of every line of the Dockerfile."""
    text = re.sub(r"\\\n", " ", (IMAGE / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def test_the_last_stage_runs_the_program_without_rights() -> None:
    rows = instructions()
    starts = [k for k, (name, _) in enumerate(rows) if name == "FROM"]
    stages = {shlex.split(rows[k][1])[2] for k in starts if " AS " in rows[k][1]}
    assert {name for name, _ in rows[: starts[0]]} <= {"ARG"}
    last = dict(rows[starts[-1] :])
    assert last["USER"] == USER
    assert json.loads(last["ENTRYPOINT"]) == [PROGRAM], "a list: no shell takes the signals"
    copied = [word.partition("=")[2] for name, rest in rows for word in rest.split() if word.startswith("--from=")]
    assert "ADD" not in {name for name, _ in rows}
    assert set(copied) == stages


def test_both_definitions_and_the_guide_name_one_user_and_one_program() -> None:
    script = (IMAGE / "build.sh").read_text()
    assert f"--config.user {USER}" in script
    assert f"--config.entrypoint {PROGRAM}" in script
    helpers = (ROOT / "deploy" / "helm" / "interfere" / "templates" / "_helpers.tpl").read_text()
    assert f"runAsUser: {USER.partition(':')[0]}" in helpers
    assert f"{PROGRAM} kubernetes release" in (ROOT / "docs" / "kubernetes.md").read_text()
    assert ".git" in (IMAGE / "Dockerfile.dockerignore").read_text().split()


# --- lock files -------------------------------------------------------------------------------------------------------

LOCKS = ("requirements.lock", "build.lock")


def locked(name: str) -> dict[str, tuple[str, int]]:
    """Version and number of hashes of every distribution of a lock file."""
    text = re.sub(r"\\\n", " ", (IMAGE / name).read_text())
    lines = [line.split("#")[0] for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    rows = {}
    for line in lines:
        requirement, *hashes = re.split(r"\s--hash=sha256:", line)
        found = Requirement(requirement)
        (pinned,) = found.specifier
        assert pinned.operator == "=="
        rows[canonicalize_name(found.name)] = pinned.version, len(hashes)
    return rows


def constraints() -> dict[str, str]:
    lines = [line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines if line)}


def needed(requirements: Iterable[str], extra: str = "") -> Iterator[Requirement]:
    """The requirements that hold here, with those of what they name."""
    for text in requirements:
        requirement = Requirement(text)
        environment = {name: str(value) for name, value in default_environment().items()} | {"extra": extra}
        if requirement.marker is None or requirement.marker.evaluate(environment):
            yield requirement
            try:
                further = distribution(requirement.name).requires or ()
            except PackageNotFoundError:
                pytest.fail(f"{requirement.name} is not installed: make install")
            for inner in ("", *requirement.extras):
                yield from needed(further, inner)


@pytest.mark.parametrize("name", LOCKS)
def test_every_line_of_a_lock_file_is_a_tested_version_with_hashes(name: str) -> None:
    tested = constraints()
    rows = locked(name)
    assert all(n_hashes > 0 for _, n_hashes in rows.values())
    told = {name: version for name, (version, _) in rows.items() if name in tested}
    assert told == {name: tested[name] for name in told}, "constraints.txt has changed: make lock"


def test_the_image_needs_nothing_that_is_not_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = {
        canonicalize_name(requirement.name): requirement
        for requirement in needed([*project["dependencies"], *extras["serve"], *extras["kubernetes"]])
    }
    rows = locked("requirements.lock")
    assert asked.keys() <= rows.keys(), "make lock"
    assert all(requirement.specifier.contains(rows[name][0]) for name, requirement in asked.items())
    assert not {"torch", "mlflow", "lightgbm", "pandas", "pyarrow", "scipy"} & rows.keys()


def test_both_definitions_install_from_the_lock_files_and_write_a_bill_of_materials() -> None:
    for name in ("Dockerfile", "build.sh"):
        text = re.sub(r"\\\n", " ", (IMAGE / name).read_text())
        for lock in LOCKS:
            assert re.search(rf"--require-hashes --only-binary=:all:\s+-r deploy/image/{lock}", text), (name, lock)
        assert re.search(r"cyclonedx-py\S* environment .*/opt/interfere/sbom\.cdx\.json", text), name
