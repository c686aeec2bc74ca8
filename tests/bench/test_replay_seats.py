"""Does a third job on a device pay? Replays with two, three and four seats, and without sharing.

Traces: the one-device jobs of each of Gavel's two Philly-derived traces on eight devices at an offered load of 0.75.
One has short jobs and the other long ones, so that a mean of both would be the second's. On the shipped table
`cpu-groups`, pairs and groups of one machine, their job types, in alphabetical order, take the names of its workloads
in turn; on Gavel's V100 pairs they are themselves. A measured group runs as measured, any other by the sum and by the
product of its pairs: two ends, not two guesses. Intervals are of the mean over the recorded days of the trace.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from interfere.data.importers.gavel import import_gavel
from interfere.data.importers.published_traces import import_philly
from interfere.data.loading import shipped_table
from interfere.data.tables import Table, read_table, write_table
from interfere.data.traces import JobTrace, TraceJob, VirtualCluster, write_trace
from interfere.records.cluster import DEFAULT_SEATS
from interfere.sim.schedulers.records import PRESETS
from interfere.study.comparison import Line
from interfere.study.questions import ask
from interfere.study.replay_question import ReplayAnswer
from interfere.study.study import Study
from interfere.training.study_models import TrainedModels
from tests.bench.history import record
from tests.data.importers.public_files import public

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]
PHILLY = ("philly_103959", "philly_7f04ca")
POLICIES = (PRESETS["sjf-easy-matching"], PRESETS["qssf-easy-matching"])
SEATS, DEVICES, LOAD = (2, 3, 4), 8, 0.75


def one_device_jobs(name: str) -> list[TraceJob]:
    """The one-device jobs of a trace, as imported."""
    trace = import_philly(public(f"gavel/{name}.trace"), throughputs=public("gavel/oracle_throughputs.json")).trace
    assert trace is not None
    return [job for job in trace.jobs if job.gpus == 1 and job.duration_s > 0]


def write(folder: Path, name: str, table: Table, *, renames: bool) -> Study:
    """The trace and the table as folders, and what is asked of them."""
    jobs, known = one_device_jobs(name), [job.workload for job in table.jobs]
    kinds = sorted({job.workload for job in jobs})
    name_of = {kind: known[k % len(known)] if renames else kind for k, kind in enumerate(kinds)}
    renamed = tuple(replace(job, workload=name_of[job.workload], vc=name) for job in jobs)
    clusters = (VirtualCluster(vc=name, nodes=1, gpus_per_node=DEVICES),)
    write_trace(folder / "trace", JobTrace(name=name, jobs=renamed, clusters=clusters))
    write_table(folder / "table", table)
    return Study(trace=folder / "trace", table=folder / "table", schedulers=POLICIES, seats=SEATS, loads=(LOAD,))


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


@pytest.mark.parametrize("trace", PHILLY)
@pytest.mark.parametrize("source", ["cpu-groups", "gavel"])
def test_whether_a_third_job_pays(source: str, trace: str, tmp_path: Path) -> None:
    if source == "cpu-groups":
        question = write(tmp_path, trace, read_table(shipped_table(source)), renames=True)
    else:
        read = import_gavel(public("gavel/oracle_throughputs.json"))
        question = write(tmp_path, trace, Table(name="gavel", jobs=read.jobs, pairs=read.pairs), renames=False)
        question = replace(question, device_type="v100")
    answer = ask(question, TrainedModels())
    assert isinstance(answer, ReplayAnswer)
    assert answer.product is not None
    print(f"\n{source}, {trace}, load {LOAD}")
    for note in answer.notes:
        print(f"  {note}")
    for ends, study in (("sum", answer.comparison), ("product", answer.product)):
        for line in study.stable:
            if ends == "sum" or line.scheduler.seats > DEFAULT_SEATS:
                print(f"  {ends:8}{told(line)}")
            if line.change_to_pairs is not None:
                record(f"seats {source} {trace} {ends} {line.policy}", {"against_two": line.change_to_pairs.mean})
            assert line.worst_slowdown.interval.is_known
            assert line.completion_s.interval.is_known
    print(f"  {answer.comparison.stable[0].completion_s.interval.population}")
