"""The two definitions of the image agree with one another, with the chart and with the guide; neither runs as root."""

import json
import re
import shlex

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
    assert rows[0][0] == "FROM"
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
