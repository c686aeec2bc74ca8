"""Does a third job on a device pay? Replays with two, three and four seats, and without sharing.

Traces: the one-device jobs of Gavel's two Philly-derived traces, each on eight devices at an offered load of 0.75 and
0.9. On the shipped table of one CPU core their job types, in alphabetical order, take the names of its workloads in
turn; on Gavel's V100 pairs they are themselves. A measured group runs as measured, any other by the sum and by the
product of its pairs: two ends, not two guesses. Intervals are of the mean over the recorded days of both traces.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.data.importers.gavel import import_gavel
from interfere.data.importers.philly import import_philly
from interfere.data.shipped_tables import shipped_table
from interfere.data.tables import Table, read_table, write_table
from interfere.data.traces import JobTrace, TraceJob, VirtualCluster, write_trace
from interfere.sim.schedulers.names import parse_name
from interfere.sim.study import Line
from tests.bench.history import record
from tests.data.importers.public_files import public
from training.replay.answer import answer_question
from training.replay.question import Question

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]
PHILLY = ("philly_103959", "philly_7f04ca")
POLICIES = ("sjf+easy+matching", "qssf+easy+matching")
SEATS, DEVICES = (2, 3, 4), 8


@pytest.fixture(scope="module")
def traces() -> dict[str, Sequence[TraceJob]]:
    """The one-device jobs of each trace, as imported."""
    rates = public("gavel/oracle_throughputs.json")
    read = {name: import_philly(public(f"gavel/{name}.trace"), throughputs=rates).trace for name in PHILLY}
    return {
        name: [job for job in trace.jobs if job.gpus == 1 and job.duration_s > 0]
        for name, trace in read.items()
        if trace is not None
    }


def write(folder: Path, traces: dict[str, Sequence[TraceJob]], table: Table, *, renames: bool) -> Question:
    """The traces as two clusters of one trace, and the table."""
    kinds = sorted({job.workload for jobs in traces.values() for job in jobs})
    known = [job.workload for job in table.jobs]
    name_of = {kind: known[k % len(known)] if renames else kind for k, kind in enumerate(kinds)}
    jobs = [
        replace(job, job_id=f"{name}-{job.job_id}", workload=name_of[job.workload], vc=name)
        for name, own in traces.items()
        for job in own
    ]
    clusters = tuple(VirtualCluster(vc=name, nodes=1, gpus_per_node=DEVICES) for name in traces)
    jobs.sort(key=lambda job: job.arrival_s)
    write_trace(folder / "trace", JobTrace(name="philly", jobs=tuple(jobs), clusters=clusters))
    write_table(folder / "table", table)
    return Question(
        trace=folder / "trace", truth=folder / "table", policies=POLICIES, seats=SEATS, tie_draws=0, load=0.75
    )


def told(line: Line) -> str:
    """One line for people."""
    changes = [line.change, line.change_to_pairs]
    texts = [
        f"{100 * each.mean:+.1f} % [{100 * each.interval.low:+.1f}, {100 * each.interval.high:+.1f}]" if each else "-"
        for each in changes
    ]
    hours = [time_s / 3600 for time_s in (line.completion_s.mean, *_ends(line))]
    worst = line.worst_slowdown
    return (
        f"{line.policy:28} mean {hours[0]:.2f} h [{hours[1]:.2f}, {hours[2]:.2f}], against none {texts[0]}, against "
        f"two {texts[1]}, worst of a day {worst.mean:.2f} [{worst.interval.low:.2f}, {worst.interval.high:.2f}], "
        f"of all {line.score.worst_slowdown:.2f}, shared {line.score.shared:.0%}"
    )


def _ends(line: Line) -> tuple[float, float]:
    return line.completion_s.interval.low, line.completion_s.interval.high


@pytest.mark.parametrize("load", [0.75, 0.9])
@pytest.mark.parametrize("source", ["cpu", "gavel"])
def test_whether_a_third_job_pays(
    source: str, load: float, traces: dict[str, Sequence[TraceJob]], tmp_path: Path
) -> None:
    if source == "cpu":
        question = write(tmp_path, traces, read_table(shipped_table("cpu")), renames=True)
    else:
        read = import_gavel(public("gavel/oracle_throughputs.json"))
        question = write(tmp_path, traces, Table(name="gavel", jobs=read.jobs, pairs=read.pairs), renames=False)
        question = replace(question, device_type="v100")
    answer = answer_question(replace(question, load=load))
    assert answer.product is not None
    print(f"\n{source}, load {load}")
    for note in answer.notes:
        print(f"  {note}")
    for ends, study in (("sum", answer.study), ("product", answer.product)):
        for kind, lines in (("", study.stable), ("overloaded ", study.overloaded)):
            for line in lines:
                if ends == "sum" or parse_name(line.policy).seats > 2:
                    print(f"  {kind}{ends:8}{told(line)}")
                if line.change_to_pairs is not None:
                    record(f"seats {source} {load} {ends} {line.policy}", {"against_two": line.change_to_pairs.mean})
    print(f"  {answer.study.stable[0].completion_s.interval.population}")
    for line in answer.study.stable:
        assert line.worst_slowdown.interval.is_known
        assert line.completion_s.interval.is_known
