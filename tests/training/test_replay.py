"""`interfere replay` from folders to a report, and what it says of input that will not do."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from interfere.data.tables import Table
from interfere.data.traces import JobTrace, TraceJob, VirtualCluster, write_trace
from interfere.errors import InvalidInputError
from interfere.records import PairMeasurement, PairStatus
from interfere.sim.truth import truth_of
from training.commands.replay import app
from training.replay.model_beliefs import filled, modelled
from training.replay.question import Question, replayed


@pytest.fixture(scope="module")
def trace_folder(small: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two virtual clusters, one of them flooded, on the workloads of the small table."""
    rng = np.random.default_rng(0)
    names = [job.workload for job in small.jobs]
    arrivals = np.cumsum(rng.exponential(1000.0, 160)).tolist()
    jobs = [
        TraceJob(
            job_id=f"j{k}",
            workload=names[k % len(names)],
            arrival_s=at,
            gpus=1 + k % 2,
            user=f"u{k % 3}",
            duration_s=float(rng.exponential(900.0 if k % 4 else 9000.0)),
            vc="calm" if k % 4 else "flooded",
        )
        for k, at in enumerate(arrivals)
    ]
    clusters = (
        VirtualCluster(vc="calm", nodes=1, gpus_per_node=2),
        VirtualCluster(vc="flooded", nodes=1, gpus_per_node=1),
    )
    folder = tmp_path_factory.mktemp("traces") / "made"
    write_trace(folder, JobTrace(name="made", jobs=tuple(jobs), clusters=clusters))
    return folder


def test_from_folders_to_a_report(trace_folder: Path, small_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    ran = CliRunner().invoke(
        app,
        [
            str(trace_folder),
            "--truth",
            str(small_folder),
            "--policy",
            "sjf+backfill+matching",
            "--policy",
            "fifo",
            "--draws",
            "1",
            "--out",
            str(out),
            "--json",
        ],
    )
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert [line["policy"] for line in found["stable"]] == ["sjf+backfill", "sjf+backfill+matching", "fifo"]
    assert found["overloaded"][0]["score"]["jobs"] == 40
    assert any("clipped at 1" in note for note in found["notes"])
    assert found["stable"][1]["change"]["traces"] == 2
    least = min(found["stable"], key=lambda line: line["score"]["mean_completion_s"])
    assert found["verdicts"][0].startswith(f"soonest of all: {least['policy']}, ")
    assert [told.partition(":")[0] for told in found["verdicts"][1:]] == [
        "soonest without knowing durations beforehand",
        "soonest of those, without stopping jobs",
    ]
    assert all(": fifo, " in told for told in found["verdicts"][1:])
    with (out / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 3
    assert {row["policy"] for row in rows} == {"sjf+backfill", "sjf+backfill+matching", "fifo"}
    jobs = pq.read_table(out / "jobs.parquet").to_pandas()
    assert len(jobs) == 160 * 3
    fifo = jobs[(jobs.policy == "fifo") & (jobs.world == "calm")]
    mean = found["stable"][2]["score"]["mean_completion_s"]
    assert (fifo.ended_s - fifo.arrival_s).mean() == pytest.approx(mean)
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 4
    assert "Worlds with stable load" in page
    assert 'src="http' not in page
    assert sorted(path.name for path in out.iterdir()) == ["jobs.parquet", "report.html", "runs.csv"]


def test_a_table_for_people(trace_folder: Path, small_folder: Path) -> None:
    ran = CliRunner().invoke(
        app, [str(trace_folder), "--truth", str(small_folder), "--policy", "srtf+backfill+greedy", "--any-node"]
    )
    assert ran.exit_code == 0, ran.output
    assert "srtf+backfill+greedy" in ran.stdout
    assert "Overloaded worlds" in ran.stdout
    assert "mean completion" in ran.stderr
    assert max(map(len, ran.stdout.splitlines())) <= 80


def test_the_model_never_sees_hidden_pairs(small: Table) -> None:
    """Other slowdowns of the hidden pairs change no answer."""
    truth = truth_of(small)
    found = modelled(small, truth, hide=0.3, seed=0)
    assert 0 < found.error < 0.5
    pairs = tuple(
        type(p)(**{n: getattr(p, n) for n in p.__dataclass_fields__} | {"slowdown": 9.0, "lower": 8.0, "upper": 10.0})
        if tuple(sorted((p.victim, p.neighbour))) in found.hidden
        else p
        for p in small.pairs
    )
    other = modelled(Table(name=small.name, jobs=small.jobs, pairs=pairs), truth, hide=0.3, seed=0)
    assert other.hidden == found.hidden
    np.testing.assert_array_equal(other.predictor.slowdown, found.predictor.slowdown)
    victim, neighbour, *_ = found.measured[0]
    told = found.predictor.slowdown[truth.place[victim], truth.place[neighbour]]
    assert told == truth.table[truth.place[victim], truth.place[neighbour]]


def test_holes_are_filled_by_a_model(small: Table) -> None:
    """Of every profiled workload; what was measured stays, who does not fit still does not."""
    first = small.jobs[0].workload
    misfit = next(p for p in small.pairs if first not in (p.victim, p.neighbour) and p.victim != p.neighbour)
    pair = (misfit.victim, misfit.neighbour)
    kept = [p for p in small.pairs if first not in (p.victim, p.neighbour) and (p.victim, p.neighbour) != pair]
    no = PairMeasurement(
        victim=pair[0],
        neighbour=pair[1],
        device_type=misfit.device_type,
        mode=misfit.mode,
        reason="too large",
        status=PairStatus.INFEASIBLE,
    )
    table = Table(name="part", jobs=small.jobs, pairs=(*kept, no))
    before = truth_of(table)
    after = filled(table, before, seed=0)
    assert first not in before.workloads
    assert after.workloads == tuple(sorted(job.workload for job in small.jobs))
    inner = np.ix_(*[[after.place[name] for name in before.workloads]] * 2)
    np.testing.assert_array_equal(after.table[inner], before.table)
    assert after.filled == 2 * len(small.jobs) - 1
    assert np.isnan(after.table[after.place[pair[1]], after.place[pair[0]]])
    assert np.nanmin(after.table) >= 1
    assert np.isnan(after.table).sum() == 2


@pytest.mark.parametrize("online", [False, True])
def test_decided_by_a_model(trace_folder: Path, small_folder: Path, online: bool) -> None:
    answer = replayed(
        Question(
            trace=trace_folder, truth=small_folder, policies=("fifo+backfill+greedy",), predict="model", online=online
        )
    )
    assert "pairs hidden" in answer.notes[-1]
    assert answer.study.stable[1].score.pairs > 0


def test_what_is_believed_decides(trace_folder: Path, small_folder: Path) -> None:
    """An error and ignorance make other pairs; a cap of 1 makes none."""

    def asked(**rest: object) -> float:
        question = Question(trace=trace_folder, truth=small_folder, policies=("sjf+backfill+matching",), **rest)  # type: ignore[arg-type]
        return replayed(question).study.stable[1].score.mean_completion_s

    known = asked()
    assert asked(predict="mean", cap=9.0) != known
    assert asked(error=0.5) != known
    assert asked(most_shared_gpus=1) != known
    capped = replayed(Question(trace=trace_folder, truth=small_folder, policies=("sjf+backfill+matching",), cap=1.0))
    assert capped.study.stable[1].score.pairs == 0


def test_guests_end_first_where_gangs_wait(trace_folder: Path, small_folder: Path) -> None:
    common = {"trace": trace_folder, "truth": small_folder, "policies": ("fifo+backfill+greedy",)}
    ruled, stays = replayed(Question(**common)), replayed(Question(**common, guest_may_stay=True))
    assert any("guests end first" in note for note in ruled.notes)
    assert not any("guests end first" in note for note in stays.notes)
    assert ruled.study.stable[1].score.pairs < stays.study.stable[1].score.pairs


def test_loads_and_devices_of_a_trace_without(trace_folder: Path, small_folder: Path, tmp_path: Path) -> None:
    jobs = tuple(TraceJob(job_id=f"{k}", workload="gemm", arrival_s=k, gpus=1, duration_s=5) for k in range(20))
    write_trace(tmp_path / "bare", JobTrace(name="bare", jobs=jobs))
    common = {"trace": tmp_path / "bare", "truth": small_folder, "policies": ("fifo",)}
    found = replayed(Question(**common, gpus=4, per_node=2, load=0.5, draws=1))
    assert found.study.runs[0].load == pytest.approx(0.5)
    assert found.study.runs[0].world == "all"
    answer = replayed(Question(**common, gpus=4, per_node=2, fill=True))
    assert "0 filled by a model" in answer.notes[0]  # nothing was missing
    with pytest.raises(InvalidInputError, match="which devices"):
        replayed(Question(**common))
    with pytest.raises(InvalidInputError, match="do not fill"):
        replayed(Question(**common, gpus=5, per_node=2))
    with pytest.raises(InvalidInputError, match="says which devices"):
        replayed(Question(trace=trace_folder, truth=small_folder, gpus=4))


def test_ties_in_another_order(small_folder: Path, tmp_path: Path) -> None:
    """Long and short ones in the same second, first come first served: who comes first is a matter of the seed."""
    jobs = tuple(
        TraceJob(job_id=f"{k}", workload="gemm", arrival_s=600.0 * (k // 4), gpus=1, duration_s=10.0 + 90 * (k % 4))
        for k in range(40)
    )
    write_trace(tmp_path / "ties", JobTrace(name="ties", jobs=jobs))
    common = {"trace": tmp_path / "ties", "truth": small_folder, "policies": ("fifo",), "gpus": 1}

    def mean(**rest: object) -> float:
        return replayed(Question(**common, **rest)).study.runs[0].score.mean_completion_s  # type: ignore[arg-type]

    assert mean(shuffle_ties=True) != mean() == mean(seed=1)
    assert mean(shuffle_ties=True, seed=1) != mean(shuffle_ties=True)


def test_questions_that_make_no_sense(trace_folder: Path, small_folder: Path) -> None:
    common = {"trace": trace_folder, "truth": small_folder}
    with pytest.raises(InvalidInputError, match="no such policy"):
        replayed(Question(**common, policies=("best",)))
    with pytest.raises(InvalidInputError, match="error is put on the truth"):
        replayed(Question(**common, predict="mean", error=0.1))
    with pytest.raises(InvalidInputError, match="share of pairs"):
        replayed(Question(**common, predict="model", hide=1.0))
    with pytest.raises(InvalidInputError, match="one device type and mode"):
        replayed(Question(**common, device_type="h100"))
