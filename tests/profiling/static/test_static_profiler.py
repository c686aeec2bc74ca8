"""`profile static`, as a user runs it; the traced code runs in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from interfere.data.facts import without_static
from interfere.data.tables import add_profiles, read_table
from interfere.errors import UnfitError
from interfere.profiling.measurement_log import lock_log
from interfere.profiling.static.profiler import StaticProfiler
from interfere.profiling.static.profiles import add_static, static_profile
from interfere.profiling.static.trace import trace_step
from interfere.records import JobProfile
from tests.profiling.static import sample_factories as make

MODULE = "tests.profiling.static.sample_factories"
MINE = """
import torch
from interfere.profiling.static import inference

def linear():
    model = torch.nn.Linear(8, 8)
    x = torch.randn(4, 8)
    return inference(model, lambda: model(x))
"""


def interfere(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "interfere", "profile", "static", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_users_factory_becomes_a_profile_in_a_table(tmp_path: Path) -> None:
    arguments = ("--device-type", "h100", "--out", str(tmp_path / "t"), "--workload", "mine")
    done = interfere(f"{MODULE}:linear", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["profile"]["workload"] == "mine"
    assert document["written"] == str(tmp_path / "t")
    (first,) = read_table(tmp_path / "t").jobs
    assert (first.workload, first.device_type, first.source) == ("mine", "h100", "static")
    again = interfere(f"{MODULE}:linear_adam", *arguments)
    assert again.returncode == 0, again.stderr
    assert "peak memory" in again.stdout
    (second,) = read_table(tmp_path / "t").jobs
    assert second.memory_optimizer_bytes > first.memory_optimizer_bytes


def test_a_users_folder_hides_no_library_and_a_broken_module_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("raise SystemExit('hostile code ran')")
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("factory = 1 / 0")
    done = interfere("mine:linear", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["profile"]["workload"] == "mine:linear"
    failed = interfere("broken:factory", cwd=tmp_path)
    assert failed.returncode == 1
    assert "ZeroDivisionError" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_a_measured_job_keeps_its_facts_and_gains_the_static_ones(tmp_path: Path) -> None:
    measured = JobProfile(workload="mine", device_type="v100", step_time_s=0.5, source="gavel")
    add_profiles(tmp_path / "t", [measured])
    static = static_profile(trace_step(make.linear), "mine", "v100")
    row = add_static(tmp_path / "t", static)
    assert read_table(tmp_path / "t").jobs == (row,)
    assert without_static(row) == measured
    assert row.static_step_time_s == static.step_time_s
    assert not (tmp_path / "t" / "raw").exists()


def test_a_table_that_a_campaign_works_on_is_refused(tmp_path: Path) -> None:
    static = static_profile(trace_step(make.linear), "mine", "v100")
    with lock_log(tmp_path / "t" / "raw"), pytest.raises(UnfitError, match="another profiler"):
        add_static(tmp_path / "t", static)
    add_static(tmp_path / "t", static)
    assert read_table(tmp_path / "t").jobs == (static,)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((f"{MODULE}:linear", "--device-type", "tpu-v9"), "tpu-v9"),
        ((f"{MODULE}:linear", "--device-type", "cpu-core"), "no peak rates"),
        (("GPT-9 (batch size 1)",), "module:factory"),
        ((f"{MODULE}:nothing",), "cannot be imported"),
        (("no.such.module:factory",), "cannot be imported"),
        ((f"{MODULE}:data_dependent",), "cannot be traced"),
        ((f"{MODULE}:leaves",), "exit code 7"),
    ],
)
def test_bad_input_is_one_message(arguments: tuple[str, ...], said: str) -> None:
    done = interfere(*arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert "remedy" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_factory_that_never_comes_back_is_ended() -> None:
    with pytest.raises(UnfitError, match="not traced within"):
        StaticProfiler("h100", limit_s=4.0).profile_solo(f"{MODULE}:waits")
