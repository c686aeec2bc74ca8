"""Every option of `interfere replay`, with deadlines and without: it changes the answer, or it is refused."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from interfere.data.tables import Table, write_table
from interfere.data.traces import JobTrace, TraceJob, VirtualCluster, write_trace
from interfere.errors import InvalidInputError
from interfere.records import PairMeasurement
from interfere.study.study import Study
from interfere.training.commands.replay import app

QUEUE, PREEMPTIVE, UNSHARED = "edf-first-fit-greedy", "srtf-first-fit-greedy", "edf-first-fit"
REMATCH = "fifo-rematch-matching"
PLAIN, DEADLINES = (), ("--deadlines", "usual")


@dataclass(frozen=True, kw_only=True)
class Case:
    """Two command lines that differ in one option only; in each kind of world their answers differ, or the second is
    refused."""

    first: str  # words beside the trace; `{name}` stands for an input folder
    second: str
    refused: Sequence[tuple[str, ...]] = ()  # kinds of worlds in which the second is refused


BOTH = (PLAIN, DEADLINES)
CASES = {
    "trace": Case(first="{trace}", second="{other_trace}"),
    "table": Case(first="--data {table}", second="--data {two_types} --device-type slow --set mode=timeslice"),
    "table, a shipped table": Case(first="--data {table}", second="--data cpu-groups"),
    "schedulers": Case(first=f"--policy {UNSHARED}", second="--policy fifo-first-fit"),
    "schedulers, unknown": Case(first="", second="--policy best", refused=BOTH),
    "predict": Case(first="--cap 9", second="--cap 9 --predict mean"),
    "predict, no policy shares": Case(
        first=f"--policy {UNSHARED}", second=f"--policy {UNSHARED} --predict mean", refused=BOTH
    ),
    "hide": Case(first="--predict model --cap 1.7", second="--predict model --cap 1.7 --set hide=0.5"),
    "hide, no model": Case(first="", second="--set hide=0.7", refused=BOTH),
    "online": Case(first="--predict mean --cap 9", second="--predict mean --cap 9 --set online=true"),
    "online, no policy shares": Case(
        first=f"--policy {UNSHARED}", second=f"--policy {UNSHARED} --set online=true", refused=BOTH
    ),
    "error": Case(first="", second="--set error=0.5"),
    "error, not of the truth": Case(
        first="--predict mean --cap 9", second="--predict mean --cap 9 --set error=0.5", refused=BOTH
    ),
    "caps": Case(first="", second="--cap 1.05"),
    "caps, no policy shares": Case(first=f"--policy {UNSHARED}", second=f"--policy {UNSHARED} --cap 2", refused=BOTH),
    "guest_may_stay": Case(first="--set guest_may_stay=true", second="--set guest_may_stay=false"),
    "guest_may_stay, jobs are stopped": Case(
        first=f"--policy {PREEMPTIVE}", second=f"--policy {PREEMPTIVE} --set guest_may_stay=true", refused=BOTH
    ),
    "most_shared_gpus": Case(first="", second="--set most_shared_gpus=1"),
    "most_shared_gpus, no policy shares": Case(
        first=f"--policy {UNSHARED}", second=f"--policy {UNSHARED} --set most_shared_gpus=1", refused=BOTH
    ),
    "seats": Case(first="--policy sjf-easy-matching", second="--policy sjf-easy-matching --seats 3"),
    "seats, no policy plans groups": Case(first="", second="--seats 3", refused=BOTH),
    "seats, guests end first": Case(
        first="", second="--policy sjf-easy-matching --seats 3 --set guest_may_stay=false", refused=BOTH
    ),
    "fill": Case(first="--data {gaps}", second="--data {gaps} --set fill=true"),
    "unknown": Case(first="--data {without_one}", second="--data {without_one} --set unknown=median"),
    "unknown, at worst": Case(
        first="--data {without_one} --set unknown=median", second="--data {without_one} --set unknown=worst"
    ),
    "unknown, no policy shares": Case(
        first=f"--policy {UNSHARED}", second=f"--policy {UNSHARED} --set unknown=worst", refused=BOTH
    ),
    "unknown, a model": Case(first="", second="--predict model --set unknown=worst", refused=BOTH),
    "device_type": Case(
        first="--data {two_types} --set mode=timeslice --device-type fast",
        second="--data {two_types} --set mode=timeslice --device-type slow",
    ),
    "device_type, unknown": Case(first="", second="--device-type none", refused=BOTH),
    "mode": Case(
        first="--data {two_types} --device-type fast --set mode=timeslice",
        second="--data {two_types} --device-type fast --set mode=mps",
    ),
    "gpus": Case(first="{bare_trace} --gpus 4 --set per_node=1", second="{bare_trace} --gpus 6 --set per_node=1"),
    "gpus_by_type": Case(
        first="{bare_trace} --data {two_types} --set mode=timeslice --gpus fast=4,slow=4",
        second="{bare_trace} --data {two_types} --set mode=timeslice --gpus fast=4,slow=6 --set per_node=2",
        refused=(DEADLINES,),
    ),
    "gpus_by_type, not a number": Case(first="", second="{bare_trace} --gpus fast=many", refused=BOTH),
    "gpus, the trace says": Case(first="", second="--gpus 4", refused=BOTH),
    "per_node": Case(
        first="{bare_trace} --policy fifo --gpus 8 --set whole_nodes=true --set per_node=4",
        second="{bare_trace} --policy fifo --gpus 8 --set whole_nodes=true --set per_node=2",
    ),
    "per_node, no gpus": Case(first="", second="--set per_node=2", refused=BOTH),
    "whole_nodes": Case(first="--policy fifo --set whole_nodes=false", second="--policy fifo --set whole_nodes=true"),
    "whole_nodes, the server decides": Case(
        first="--policy policy", second="--policy policy --set whole_nodes=false", refused=BOTH
    ),
    "loads": Case(first="", second="--load 0.5"),
    "draws": Case(first="{two_days}", second="{two_days} --draws 2"),
    "draws, one day": Case(first="", second="--draws 2", refused=BOTH),
    "checkpoint_s": Case(
        first=f"--policy {PREEMPTIVE}",
        second=f"--policy {PREEMPTIVE} --set checkpoint_s=900",
    ),
    "checkpoint_s, no job is stopped": Case(first="", second="--set checkpoint_s=900", refused=(PLAIN,)),
    "duration_error": Case(first="--policy sjf-first-fit", second="--policy sjf-first-fit --set duration_error=2"),
    "duration_error, no policy is told run times": Case(
        first="--policy fifo-first-fit", second="--policy fifo-first-fit --set duration_error=0.5", refused=BOTH
    ),
    "duration_error, limits are told": Case(
        first="--policy sjf-easy",
        second="--policy sjf-easy --set limit_unit_s=60 --set duration_error=0.5",
        refused=BOTH,
    ),
    "limit_unit_s": Case(first="--policy sjf-easy", second="--policy sjf-easy --set limit_unit_s=86400"),
    "limit_unit_s, no policy is told run times": Case(
        first="--policy fifo-first-fit", second="--policy fifo-first-fit --set limit_unit_s=60", refused=BOTH
    ),
    "round_s": Case(first="", second="--set round_s=900"),
    "turnover_s": Case(first="", second="--set turnover_s=600"),
    "slice_s": Case(first=f"--policy {REMATCH}", second=f"--policy {REMATCH} --set slice_s=3000"),
    "slice_s, no policy that pairs anew": Case(
        first=f"--policy {PREEMPTIVE}", second=f"--policy {PREEMPTIVE} --set slice_s=3000", refused=BOTH
    ),
    "deadlines": Case(first="--deadlines tight", second="--deadlines loose"),
    "deadlines, unknown family": Case(first="", second="--deadlines never", refused=BOTH),
    "added": Case(first="", second="--set added=true", refused=(PLAIN,)),
    "taken": Case(first="", second="--set taken=true", refused=(PLAIN,)),
    "seed": Case(first="--set error=0.5", second="--set error=0.5 --set seed=1"),
    "model": Case(first="", second="--model cpu"),
    "model, and a table": Case(first="", second="--model cpu --data {table}", refused=BOTH),
    "name_map": Case(first="--data {without_one}", second="--data {without_one} --set name_map={names}"),
    "pairs, of another question": Case(first="", second="--set pairs=3", refused=BOTH),
    "no such field": Case(first="", second="--set speed=3", refused=BOTH),
    "out": Case(first="", second="--out {out}"),
}


@pytest.fixture(scope="module")
def inputs(small: Table, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A trace of a busy morning with gangs on nodes of two devices, without its devices, and another; a table, one with
    gaps, and one with two device types and two modes."""
    folder = tmp_path_factory.mktemp("inputs")
    names = [job.workload for job in small.jobs]
    write_trace(folder / "trace", morning(names, seed=0))
    write_trace(folder / "other_trace", morning(names, seed=1))
    long = morning(names, seed=2)
    write_trace(
        folder / "two_days", replace(long, jobs=tuple(replace(job, arrival_s=8 * job.arrival_s) for job in long.jobs))
    )
    write_trace(folder / "bare_trace", replace(morning(names, seed=0), clusters=()))
    unmeasured = set(names[:2])
    gaps = tuple(pair for pair in small.pairs if not unmeasured & {pair.victim, pair.neighbour})
    jobs = tuple(replace(job, device_type=kind) for kind in ("fast", "slow") for job in small.jobs)
    pairs = tuple(
        PairMeasurement(
            victim=pair.victim,
            neighbour=pair.neighbour,
            device_type=kind,
            mode=mode,
            slowdown=1 + factor * (pair.slowdown - 1),
        )
        for kind, mode, factor in (("fast", "timeslice", 1.0), ("slow", "timeslice", 0.1), ("fast", "mps", 0.3))
        for pair in small.ok_pairs
    )
    for table in (
        replace(small, name="table"),
        Table(name="gaps", jobs=small.jobs, pairs=gaps),
        Table(
            name="without_one",
            jobs=tuple(job for job in small.jobs if job.workload != names[0]),
            pairs=tuple(pair for pair in small.pairs if names[0] not in (pair.victim, pair.neighbour)),
        ),
        Table(name="two_types", jobs=jobs, pairs=pairs),
    ):
        (folder / table.name).mkdir()
        write_table(folder / table.name, table)
    (folder / "names").write_text(f"pattern,workload\n^{names[0]}$,{names[1]}\n")
    return {path.name: path for path in folder.iterdir()} | {"out": folder / "report"}


def morning(names: Sequence[str], seed: int) -> JobTrace:
    """Sixty jobs on four nodes of two devices from 04:00 on; the edge leaves at 08:00. Some arrive together."""
    rng = np.random.default_rng(seed)
    arrivals = np.sort(rng.integers(0, 120, 60) * 150.0).tolist()
    jobs = tuple(
        TraceJob(
            job_id=f"j{k}",
            workload=str(rng.choice(names)),
            arrival_s=arrival_s,
            gpus=1 + int(rng.integers(0, 3)) % 2,
            vc="vc",
            duration_s=float(rng.exponential(2500.0)),
        )
        for k, arrival_s in enumerate(arrivals)
    )
    clusters = (VirtualCluster(vc="vc", nodes=4, gpus_per_node=2),)
    return JobTrace(name="morning", jobs=jobs, clusters=clusters, start_s=4 * 3600.0)


def answer(text: str, kind: Sequence[str], inputs: dict[str, Path]) -> str:
    """The document of a command, without times that differ from run to run; what is left out of `text` is usual."""
    words = text.format_map(inputs | {"out": inputs["out"] / ("deadlines" if kind else "plain")}).split()
    if not words or words[0].startswith("--"):
        words.insert(0, str(inputs["trace"]))
    words += ["--data", str(inputs["table"])] if not {"--data", "--model"} & {*words} else []
    words += ["--policy", QUEUE] if "--policy" not in words else []
    words += [word for word in kind if "--deadlines" not in words]
    ran = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.stdout)
    runs = [{key: value for key, value in run.items() if key != "seconds"} for run in document["runs"]]
    return json.dumps([runs, bool(document["files"])])


@pytest.mark.parametrize("kind", BOTH, ids=["plain", "deadlines"])
@pytest.mark.parametrize("option", CASES)
def test_it_changes_the_answer_or_is_refused(option: str, kind: tuple[str, ...], inputs: dict[str, Path]) -> None:
    case = CASES[option]
    if kind in case.refused:
        with pytest.raises(InvalidInputError):
            answer(case.second, kind, inputs)
    else:
        assert answer(case.first, kind, inputs) != answer(case.second, kind, inputs)


def test_every_field_has_a_case() -> None:
    """Every field of a study, whether it has an option of its own or is set by its name."""
    cases = {name.partition(",")[0] for name in CASES} - {"no such field", "out"}
    assert cases == {each.name for each in fields(Study)} - {"question"}


def test_json_is_one_document_and_text_is_not(inputs: dict[str, Path]) -> None:
    words = [str(inputs["trace"]), "--data", str(inputs["table"]), "--policy", UNSHARED]
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["runs"]
    assert not CliRunner().invoke(app, words).stdout.startswith("{")
