"""What an import adds to published speeds: static profiles of the architectures that it knows."""

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.commands.data.importing import app
from interfere.data.facts import without_static
from interfere.data.tables import read_table

KNOWN, UNKNOWN = "LM (batch size 5)", "Nobody's model (batch size 5)"
SPEEDS = {
    "v100": {
        KNOWN: {"null": 100.0, UNKNOWN: [80.0, 5.0]},
        UNKNOWN: {"null": 10.0, KNOWN: [5.0, 80.0]},
    }
}


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A file in Gavel's form with one architecture of the catalogue."""
    path = tmp_path / "oracle_throughputs.json"
    path.write_text(json.dumps(SPEEDS))
    return path


def run(published: Path, out: Path, *options: str) -> Path:
    done = CliRunner().invoke(app, ["gavel", str(published), "--out", str(out), *options])
    assert done.exit_code == 0, done.output
    return out


def test_known_architectures_gain_static_facts_and_the_card_says_so(published: Path, tmp_path: Path) -> None:
    jobs = {job.workload: job for job in read_table(run(published, tmp_path / "with")).jobs}
    assert jobs[KNOWN].source == "gavel+static"
    assert jobs[KNOWN].step_time_s == pytest.approx(0.01)
    assert jobs[KNOWN].flops_per_step > 1e9
    assert jobs[KNOWN].kernels
    assert jobs[UNKNOWN].source == "gavel"
    assert math.isnan(jobs[UNKNOWN].flops_per_step)
    card = (tmp_path / "with" / "card.md").read_text()
    assert "static trace" in card
    assert f"no traceable architecture: {UNKNOWN}" in card


def test_without_static_facts_the_table_is_as_published(published: Path, tmp_path: Path) -> None:
    bare = read_table(run(published, tmp_path / "bare", "--no-static"))
    rich = read_table(run(published, tmp_path / "rich"))
    assert repr(bare.jobs) == repr(tuple(map(without_static, rich.jobs)))
    assert repr(bare.pairs) == repr(rich.pairs)
    assert "static trace" not in (tmp_path / "bare" / "card.md").read_text()
