"""The recipe of docs/release.md: one version everywhere, and steps that exist."""

import re
from pathlib import Path

import pytest

import interfere
from tests.deploy.test_github import ROOT

PAGE = (ROOT / "docs" / "release.md").read_text(encoding="utf-8")
STEPS = [
    line.split("#")[0].split()
    for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]
# Programs that a release needs beside this repository.
PROGRAMS = {"git", "docker", "helm", "gh"}


@pytest.mark.parametrize(
    ("file", "pattern", "count"),
    [
        ("pyproject.toml", r'^version = "(.+)"$', 1),
        ("deploy/helm/interfere/Chart.yaml", r'^(?:version|appVersion): "?([^"\n]+)"?$', 2),
        ("deploy/image/build.sh", r'\$work/image:([^"]+)"', 3),
        (".github/CITATION.cff", r"^version: (.+)$", 1),
    ],
)
def test_a_file_names_the_version_of_the_package(file: str, pattern: str, count: int) -> None:
    found = re.findall(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert found == [interfere.__version__] * count
    assert f"`{file}`" in PAGE


@pytest.mark.parametrize("words", STEPS, ids=" ".join)
def test_a_step_is_a_command_that_exists(words: list[str]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    if words[0] == "make":
        assert words[1] in targets
    elif words[0] not in PROGRAMS:
        assert (ROOT / words[0]).is_file()


@pytest.mark.parametrize("path", re.findall(r"`((?:deploy|tests|\.ci|\.github|interfere|\.changes)/[\w./-]*)`", PAGE))
def test_a_named_path_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_paths_of_commands_exist() -> None:
    paths = [Path(word) for words in STEPS for word in words if word.startswith("deploy/")]
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
