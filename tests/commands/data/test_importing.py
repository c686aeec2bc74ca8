"""Every option of `interfere data import` reaches its importer."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from interfere.commands.data.importing import app
from interfere.data.tables import read_table
from interfere.data.traces import read_trace
from interfere.errors import ConflictError
from tests.data.importers import test_helios, test_philly
from tests.data.importers.kernels import test_nsight, test_orion
from tests.monitoring import test_dcgm_import
from tests.monitoring.monitored_site import answer, write


def run(*arguments: object, out: Path) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*map(str, arguments), "--out", str(out), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_options_of_helios(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(test_helios.HEAD + test_helios.ROWS)
    (tmp_path / "vc.csv").write_text("vc,num\nvcA,2\n")
    options = ("--vc-config", tmp_path / "vc.csv", "--gpus-per-node", 4)
    run("helios", tmp_path / "jobs.csv", *options, out=tmp_path / "out")
    assert read_trace(tmp_path / "out").clusters[0].gpus_per_node == 4


def test_options_of_philly(tmp_path: Path) -> None:
    (tmp_path / "rates.json").write_text(json.dumps({"k80": test_philly.RATES["v100"]}))
    (tmp_path / "some.trace").write_text(test_philly.LINES)
    options = ("--throughputs", tmp_path / "rates.json", "--device-type", "k80")
    run("philly", tmp_path / "some.trace", *options, out=tmp_path / "out")
    assert read_trace(tmp_path / "out").jobs[0].duration_s == 250.0


def test_options_of_nsight_and_orion(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text(test_nsight.LONG)
    (tmp_path / "o.csv").write_text(test_orion.HEAD + test_orion.ROWS)
    options = ("--device-type", "h100", "--workload", "mine", "--step-time-s", 0.5)
    run("nsight", tmp_path / "n.csv", *options, "--steps", 2, out=tmp_path / "nsight")
    run("orion", tmp_path / "o.csv", *options, out=tmp_path / "orion")
    for name in ("nsight", "orion"):
        (job,) = read_table(tmp_path / name).jobs
        assert (job.workload, job.device_type, job.step_time_s) == ("mine", "h100", 0.5)
    assert read_table(tmp_path / "nsight").jobs[0].kernels[0].count == 1.0


def test_options_of_dcgm(tmp_path: Path) -> None:
    results = test_dcgm_import.with_steps()["data"]["result"]
    for one in results:
        one["metric"]["app"] = one["metric"]["pod"].upper()
    path = write(tmp_path, answer(*results))
    options = ("--by", "app", "--device-type", "h100", "--mode", "mps")
    counted = run("dcgm", path, *options, "--step-metric", "train_steps_total", out=tmp_path / "counted")
    assert (counted["jobs"], counted["pairs"]) == (2, 2)
    pair = read_table(tmp_path / "counted").pairs[0]
    assert (pair.victim, pair.device_type, pair.mode) == ("A", "h100", "mps")
    (tmp_path / "rates.csv").write_text("workload,step_time_s\nA,0.25\n")
    run("dcgm", path, *options, "--rates", tmp_path / "rates.csv", out=tmp_path / "rated")
    assert {job.workload: job.step_time_s for job in read_table(tmp_path / "rated").jobs}["A"] == 0.25


def test_a_target_in_use_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep")
    done = CliRunner().invoke(app, ["gavel", str(tmp_path / "nowhere.json"), "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, ConflictError)
    assert (tmp_path / "out" / "mine.txt").read_text() == "keep"
