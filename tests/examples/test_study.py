"""The example of a study is run as it stands, on a made trace of the shipped table's workloads."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from interfere import load_table
from interfere.data.traces import JobTrace, TraceJob, write_trace
from interfere.errors import InvalidInputError
from interfere.sim.schedulers.queue import Backfill
from interfere.sim.schedulers.records import PRESETS, Queue, SchedulerRecord, Sharing
from interfere.study.study import Study, parse_setting, read_study, scheduler_of, study_of
from interfere.training.commands.study import app

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "study" / "site.toml"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The example beside a trace of three days."""
    shutil.copy(EXAMPLE, tmp_path / "site.toml")
    names, rng = [job.workload for job in load_table("cpu").jobs], np.random.default_rng(0)
    arrivals = np.cumsum(rng.exponential(2000.0, 120)).tolist()
    jobs = tuple(
        TraceJob(
            job_id=f"j{k}", workload=names[k % len(names)], arrival_s=at, gpus=1, duration_s=float(rng.exponential(7e3))
        )
        for k, at in enumerate(arrivals)
    )
    write_trace(tmp_path / "site", JobTrace(name="site", jobs=jobs))
    return tmp_path / "site.toml"


def test_the_example_is_answered_and_goes_on_where_it_stopped(site: Path) -> None:
    words = [str(site), "--out", str(site.parent / "report"), "--json"]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert [line["policy"] for line in found["stable"]] == [
        "fifo-easy",
        "qssf-easy",
        "qssf-easy-greedy",
        "qssf-easy-matching",
        "qssf-easy-matching-3-seats",
    ]
    assert found["stable"][-1]["scheduler"]["seats"] == 3
    assert all(run["load"] == pytest.approx(0.85) for run in found["runs"])
    assert (site.parent / "report" / "report.html").is_file()
    again = CliRunner().invoke(app, words)
    assert " were done before" in again.stderr.replace("\n", " ")
    assert json.loads(again.stdout)["stable"] == found["stable"]


def test_a_setting_takes_the_place_of_an_entry_of_the_file(site: Path) -> None:
    words = [str(site), "--json", "--set", 'schedulers=["fifo-easy", "sjf-easy"]', "--set", "predict=truth"]
    ran = CliRunner().invoke(app, [*words, "--set", "caps=[]", "--set", "draws=0"])
    assert ran.exit_code == 0, ran.output
    assert [line["policy"] for line in json.loads(ran.stdout)["stable"]] == ["fifo-easy", "sjf-easy"]


def test_entries_are_read_as_the_types_of_their_fields(site: Path) -> None:
    study = study_of(read_study(site))
    assert (study.trace, study.table) == (site.parent / "site", Path("cpu"))
    assert (study.loads, study.caps, study.gpus, study.seed) == ((0.85,), (1.5,), 4, 1)
    assert [record.seats for record in study.schedulers] == [2, 2, 3]
    assert parse_setting("deadlines=usual") == ("deadlines", "usual")
    assert parse_setting("whole_nodes=false") == ("whole_nodes", False)
    assert study_of({"trace": "site", "table": "cpu", "loads": 1}) == Study(
        trace=Path("site"), table=Path("cpu"), loads=(1.0,)
    )


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ({"speed": 3}, "no such field of a study"),
        ({"draws": "2"}, "draws of a study is of another type"),
        ({"draws": 1.5}, "draws of a study is of another type"),
        ({"draws": True}, "draws of a study is of another type"),
        ({"draws": -1}, "draws of a study is out of range"),
        ({"duration_error": 3.0}, "duration_error of a study is out of range"),
        ({"caps": [0.5]}, "caps of a study is out of range"),
        ({"predict": "magic"}, "no such predict of a study"),
        ({"model": "cpu"}, "slowdowns come from one source"),
        ({"schedulers": ["best"]}, "no such policy"),
        ({"mode": "none"}, "mode"),
        ({"question": "nowhere:None"}, "no such question"),
    ],
)
def test_entries_that_make_no_sense_are_refused(entry: dict[str, object], what: str, site: Path) -> None:
    with pytest.raises(InvalidInputError, match=what):
        CliRunner().invoke(
            app,
            [str(site), *(word for name, value in entry.items() for word in ("--set", f"{name}={json.dumps(value)}"))],
            catch_exceptions=False,
        )


def test_a_file_that_is_no_study_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("trace = ")
    for name in ("broken.toml", "nowhere.toml"):
        with pytest.raises(InvalidInputError, match="not a study") as raised:
            read_study(tmp_path / name)
        assert name in str(raised.value.value)
    with pytest.raises(InvalidInputError, match="a study needs a trace"):
        study_of({"table": "cpu"})
    with pytest.raises(InvalidInputError, match="not a setting"):
        parse_setting("hide")


SEATED = SchedulerRecord(queue=Queue.SJF, backfill=Backfill.EASY, sharing=Sharing.MATCHING, one_gpu=True, seats=4)


def test_a_table_of_fields_or_a_name_is_a_record() -> None:
    table = {"queue": "sjf", "backfill": "easy", "sharing": "matching", "one_gpu": True, "seats": 4}
    assert scheduler_of(table) == SEATED
    assert scheduler_of("sjf-easy") == PRESETS["sjf-easy"]
    for wrong in (
        3,
        {},
        {"backfill": "easy"},
        {"queue": "fifo", "speed": 2},
        {"queue": "lifo"},
        table | {"seats": "4"},
    ):
        with pytest.raises(InvalidInputError):
            scheduler_of(wrong)
