"""`interfere whatif` from folders to an answer and a page, and what it says of input that will not do."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from interfere.data.tables import Table, write_table
from interfere.data.traces import JobTrace, TraceJob, VirtualCluster, write_trace
from interfere.errors import InvalidInputError
from interfere.reports.html_page import html_page
from interfere.sim.schedulers.records import PRESETS
from interfere.study.coverage import suggested_map
from interfere.study.engine import Document, Runner, in_this_process
from interfere.study.questions import ask
from interfere.study.study import Study
from interfere.study.whatif_question import WhatIfAnswer
from interfere.study.whatif_sentences import scenario_text, verdict
from interfere.training.commands.whatif import app
from interfere.training.study_models import TrainedModels


def make_trace(
    folder: Path,
    names: Sequence[str],
    *,
    gangs: bool = False,
    count: int = 90,
    load_s: float = 900.0,
    nodes: int = 1,
) -> Path:
    """Jobs over some days on nodes of four devices; every sixth is a gang where asked for."""
    rng = np.random.default_rng(1)
    arrivals = np.cumsum(rng.exponential(load_s * 6, count)).tolist()
    jobs = tuple(
        TraceJob(
            job_id=f"j{k}",
            workload=names[k % len(names)],
            arrival_s=at,
            gpus=2 if gangs and k % 6 == 0 else 1,
            duration_s=float(rng.lognormal(9.0, 1.0)),
            user=f"u{k % 3}",
            vc="site",
        )
        for k, at in enumerate(arrivals)
    )
    clusters = (VirtualCluster(vc="site", nodes=nodes, gpus_per_node=4),)
    write_trace(folder, JobTrace(name=folder.name, jobs=jobs, clusters=clusters))
    return folder


@pytest.fixture(scope="module")
def known(small: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of the table's own workloads."""
    return make_trace(tmp_path_factory.mktemp("known") / "site", [job.workload for job in small.jobs], count=260)


def quick(trace: Path, measured: Path, **options: object) -> Study:
    """A question of few replays."""
    common: dict[str, object] = {
        "trace": trace,
        "table": measured,
        "question": "whatif",
        "schedulers": (PRESETS["fifo-easy"],),
        "loads": (0.9,),
        "caps": (1.5,),
    }
    return Study(**(common | options))  # type: ignore[arg-type]


def whatif_page(answer: WhatIfAnswer) -> str:
    return html_page(answer.document())


def answered(study: Study, runner: Runner | None = None) -> WhatIfAnswer:
    answer = ask(study, TrainedModels(), runner)
    assert isinstance(answer, WhatIfAnswer)
    return answer


def test_from_a_trace_to_an_answer_a_page_and_a_resumed_run(known: Path, small_folder: Path, tmp_path: Path) -> None:
    words = [str(known), "--data", str(small_folder), "--queue", "fifo-easy", "--queue", "tiresias-first-fit"]
    words += ["--load", "0.7", "--load", "0.95", "--cap", "1.5", "--out", str(tmp_path / "out"), "--json"]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert found["coverage"]["gpu_h_share"] == pytest.approx(1.0)
    assert found["missing"]["unmeasured_share"] == pytest.approx(0.0)
    kinds = {(e["queue"], e["sharing"], e["max_slowdown"], e["target_load"]) for e in found["effects"]}
    for queue in ("fifo-easy", "tiresias-first-fit"):
        expected = {("greedy", None, load) for load in (None, 0.7, 0.95)} | {
            ("greedy", 1.5, None),
            ("greedy", 1.5, 0.95),
        }
        expected |= {("matching", None, None), ("matching", None, 0.95)}
        assert expected == {rest for name, *rest_ in kinds if name == queue for rest in [tuple(rest_)]}
    change = found["effects"][0]["change"]
    assert change["interval"]["population"].endswith("recorded days)")
    assert change["interval"]["low"] <= change["mean"] <= change["interval"]["high"]
    page = (tmp_path / "out" / "whatif.html").read_text()
    assert page.index("Known.") < page.index("Answer.") < page.index("What sharing would bring, by load")
    assert "<script" not in page
    assert 'src="http' not in page
    again = CliRunner().invoke(app, words[:-1])
    assert again.exit_code == 0, again.output
    resumed = re.findall(r"(\d+) of (\d+) were done before", again.stderr.replace("\n", " "))
    assert all(done == planned for done, planned in resumed)
    assert sum(int(planned) for _, planned in resumed) == found["planned"]
    assert max(map(len, again.stdout.splitlines())) <= 80
    (uncapped,) = (
        each["change"]["mean"]
        for each in found["effects"]
        if (each["queue"], each["sharing"], each["max_slowdown"], each["target_load"])
        == ("fifo-easy", "greedy", None, 0.95)
    )
    by_load = again.stdout[again.stdout.index("Change of the mean completion") :]
    row = next(line for line in by_load.splitlines() if line.split()[:1] == ["fifo-easy"])
    assert row.split()[-1] == f"{100 * uncapped:+.1f}"


def test_where_nothing_slows_down_a_busy_cluster_gains_and_the_report_says_so(small: Table, tmp_path: Path) -> None:
    free = replace(small, pairs=tuple(replace(p, slowdown=1.0, lower=1.0, upper=1.0) for p in small.pairs))
    (tmp_path / "free").mkdir()
    write_table(tmp_path / "free", free)
    site = make_trace(tmp_path / "site", [job.workload for job in small.jobs], count=400)
    answer = answered(quick(site, tmp_path / "free"))
    busy = [e for e in answer.effects if e.task.load == 0.9 and e.scheduler.sharing == "greedy" and answer.is_plain(e)]
    assert busy[0].change is not None
    assert busy[0].change.interval.high < 0


def test_a_trace_that_is_hardly_covered_is_refused_with_what_to_do(small_folder: Path, tmp_path: Path) -> None:
    site = make_trace(tmp_path / "site", ["train_bert_serve_v2", "quux"])
    with pytest.raises(InvalidInputError, match=r"knows 0.0% of the trace's jobs") as raised:
        answered(quick(site, small_folder))
    assert "--workloads FILE" in raised.value.remedy
    ran = CliRunner().invoke(app, [str(site), "--data", str(small_folder)])
    assert ran.exit_code == 1


def test_a_map_names_the_jobs_of_a_site(small: Table, small_folder: Path, tmp_path: Path) -> None:
    workload = small.jobs[0].workload
    site = make_trace(tmp_path / "site", [f"team7_{workload}_v2", "quux"])
    (tmp_path / "names.csv").write_text(f"pattern,workload\n{workload},{workload}\n")
    answer = answered(quick(site, small_folder, name_map=tmp_path / "names.csv"))
    assert answer.inputs.coverage.known_jobs == 45
    assert [each.workload for each in answer.inputs.unknown] == ["quux"]
    assert answer.inputs.notes[0] == "names: 45 of 90 jobs mapped by names.csv"
    text = scenario_text(answer)
    assert "if they run alone" in text
    assert "if they share as the worst measured pair" in text
    measured_first = answer.missing.pairs[0]
    assert "quux" in measured_first.names
    assert 0 < answer.missing.unmeasured_share < 1
    page = whatif_page(answer)
    assert "Measure these pairs first" in page
    assert "quux" in page


def test_names_that_resemble_a_workloads_name_are_suggested() -> None:
    rows = suggested_map(["resnet50-imagenet", "BERT base", "quux"], ["ResNet-50", "bert-base", "gemm"])
    assert rows == ["^resnet50-imagenet$,ResNet-50", "^BERT base$,bert-base"]


def test_gangs_have_a_line_of_their_own(small: Table, small_folder: Path, tmp_path: Path) -> None:
    site = make_trace(tmp_path / "site", [job.workload for job in small.jobs], gangs=True)
    answer = answered(quick(site, small_folder))
    assert answer.inputs.coverage.has_gangs
    own = [e for e in answer.effects if e.task.load is None and e.scheduler.sharing == "greedy"]
    assert {answer.gangs_share(e) for e in own} == {False, True}
    assert "gangs (assumed)" in whatif_page(answer)


def test_more_than_two_seats_are_told_beside_two_at_both_ends_of_what_groups_may_do(
    small: Table, small_folder: Path, tmp_path: Path
) -> None:
    site = make_trace(tmp_path / "site", [job.workload for job in small.jobs], load_s=700.0)
    words = [str(site), "--data", str(small_folder), "--queue", "fifo-easy", "--queue", "tiresias-first-fit"]
    words += ["--load", "0.95", "--cap", "1.5", "--seats", "3", "--out", str(tmp_path / "out")]
    ran = CliRunner().invoke(app, [*words, "--json"])
    assert ran.exit_code == 0, ran.output
    found = [each for each in json.loads(ran.stdout)["effects"] if each["seats"] == 3]
    assert {(e["queue"], e["sharing"], e["composition"], e["target_load"]) for e in found} == {
        ("fifo-easy", "matching", composition, load) for composition in ("sum", "product") for load in (None, 0.95)
    }
    busy = {e["composition"]: e["change_to_pairs"]["mean"] for e in found if e["target_load"] == 0.95}
    assert all(change != 0 for change in busy.values())
    assert busy["sum"] <= busy["product"]  # a product of slowdowns is no smaller than their sum
    page = (tmp_path / "out" / "whatif.html").read_text()
    assert "More than two jobs a device" in page
    assert "3, by product" in page
    again = CliRunner().invoke(app, words)
    assert "By jobs a device, under matching" in again.stdout
    assert "were done before" in again.stderr.replace("\n", " ")
    assert max(map(len, again.stdout.splitlines())) <= 80
    of_two = whatif_page(answered(quick(site, small_folder)))
    assert "More than two jobs a device" not in of_two


def test_the_predictions_of_a_model_are_never_called_measured(small: Table, tmp_path: Path) -> None:
    site = make_trace(tmp_path / "site", [job.workload for job in small.jobs])
    answer = answered(quick(site, tmp_path, table=None, model=Path("cpu")))
    page = whatif_page(answer)
    assert "nothing of it is measured" in page
    assert "Measured slowdowns cover" not in page
    assert answer.missing.unmeasured_share == pytest.approx(1.0)
    assert len(answer.missing.pairs) == 5


def test_an_interrupted_run_tells_what_is_done(known: Path, small_folder: Path, tmp_path: Path) -> None:
    def two_and_stop(work: Any, inputs: Any, tasks: Sequence[Any]) -> Iterator[tuple[Any, Document]]:
        for k, result in enumerate(in_this_process(work, inputs, tasks)):
            if k == 2:
                raise KeyboardInterrupt
            yield result

    answer = answered(quick(known, small_folder), Runner(engine=two_and_stop, folder=tmp_path))
    assert (answer.interrupted, answer.replays) == (True, 2)
    assert "Interrupted: 2 of " in whatif_page(answer)
    whole = answered(quick(known, small_folder), Runner(folder=tmp_path))
    assert (whole.interrupted, whole.replays) == (False, whole.planned)


def test_a_cluster_with_free_devices_is_told_that_nothing_would_share(
    small: Table, small_folder: Path, tmp_path: Path
) -> None:
    idle = make_trace(tmp_path / "idle", [small.jobs[0].workload], load_s=400_000.0)
    answer: WhatIfAnswer = answered(quick(idle, small_folder))
    text = " ".join(verdict(answer)[0])
    assert text.startswith("No: your GPUs are ")
    assert "hardly a job waits; no job would share: devices are free whenever one arrives." in text
    assert re.search(r"\d of 4 GPUs could be given back .*, and sharing adds none\.", text)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"table": None}, "slowdowns come from one source"),
        ({"model": Path("cpu")}, "slowdowns come from one source"),
        ({"table": None, "model": Path("cpu"), "unknown": "worst"}, "unknown needs measured pairs"),
        ({"schedulers": (PRESETS["fifo-easy-greedy"],)}, "--queue names a queue without sharing"),
        ({"loads": (1.2,)}, "--load lies between 0 and 1"),
        ({"loads": (float("nan"),)}, "--load lies between 0 and 1"),
        ({"caps": (0.9,)}, "caps of a study is out of range"),
        ({"caps": (1.0,)}, "--cap is a slowdown above 1"),
        ({"deadlines": "usual"}, "deadlines would change nothing: it needs question replay"),
        ({"seats": (2,)}, "two jobs a device are always compared"),
        ({"seats": (49,)}, "seats of a study is out of range"),
        ({"seats": (3,), "schedulers": (PRESETS["srtf-first-fit"],)}, "--seats would change nothing"),
        ({"gpus": 8}, "the trace says which devices there are"),
        ({"table": None, "model": Path("gpu")}, "which device type of the model"),
    ],
)
def test_what_makes_no_sense_is_refused(known: Path, small_folder: Path, options: dict[str, object], what: str) -> None:
    with pytest.raises(InvalidInputError, match=what):
        answered(quick(known, small_folder, **options))
