"""The recipes of docs/architecture.md, each written into a folder of its own and run with the installed package."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from types import ModuleType

import pytest

from interfere import PolicyClient, load_table
from interfere.config import SHIPPED_MODEL, Settings
from interfere.data.loading import shipped_table
from interfere.data.traces import JobTrace, TraceJob, write_trace
from interfere.errors import InvalidInputError, TableError
from interfere.features.pair import FeatureEncoder
from interfere.predict.onnx import load_model
from interfere.records import Device, Job, ObjectiveKind, ObjectiveTerm, Snapshot
from interfere.serving.server import start_server
from interfere.study.engine import Runner
from interfere.study.questions import ask
from interfere.study.study import study_of, with_sources
from interfere.training.dataset import build_dataset
from interfere.training.evaluation.candidates import select_champion
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.models.additive import MeanModel
from interfere.training.models.catalogue import select_models
from interfere.training.models.completed import export_pair_graph
from interfere.training.models.protocols import ModelSettings
from interfere.training.pipeline import train
from interfere.training.study_models import TrainedModels
from tests.docs.architecture_page import ROOT, example
from tests.reports.html_tree import Tree
from tests.tables import DEVICE, TablePredictor, context, plan, profile, resolver

CSV = """job,neighbour,device,iterations_per_s
resnet,,a100,10.0
bert,,a100,4.0
resnet,bert,a100,8.0
bert,resnet,a100,2.5
bert,gpt,a100,2.0
"""
CLI = [sys.executable, "-m", "interfere"]


def run(command: list[str], cwd: Path) -> str:
    """Standard output of a program that must succeed, run outside the tree with only our packages on its path."""
    environ = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(cwd)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environ, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def written(name: str, folder: Path) -> str:
    """The example as a file in the folder; its path."""
    path = folder / f"{name}_example.py"
    path.write_text(example(name), encoding="utf-8")
    return str(path)


def module(name: str) -> ModuleType:
    """The example as a module, imported but not run."""
    made = ModuleType(f"{name}_example")
    sys.modules[made.__name__] = made  # where dataclasses look up annotations
    exec(compile(example(name), made.__name__, "exec"), made.__dict__)
    return made


def test_an_importer_writes_a_table_that_is_read_and_checked_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text(CSV, encoding="utf-8")
    files = run([sys.executable, written("importer", tmp_path), "rates.csv", "lab"], tmp_path).split()
    assert sorted(Path(file).name for file in files) == ["card.md", "jobs.parquet", "pairs.parquet"]
    table = load_table(tmp_path / "lab")
    assert {job.workload: job.step_time_s for job in table.jobs} == {"resnet": 0.1, "bert": 0.25}
    assert {(pair.victim, pair.neighbour): pair.slowdown for pair in table.pairs} == {
        ("resnet", "bert"): 1.25,
        ("bert", "resnet"): 1.6,
    }
    assert "1" in (tmp_path / "lab" / "card.md").read_text(encoding="utf-8")  # the dropped pair is counted
    assert "a job of the pair was not measured alone" in (tmp_path / "lab" / "card.md").read_text(encoding="utf-8")
    checked = json.loads(run([*CLI, "data", "check", "lab", "--json"], tmp_path))
    assert [row["pairs"] for row in checked["tables"]] == [2]


def test_an_importer_names_file_row_and_column_of_what_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text(CSV.replace("8.0", "8,0"), encoding="utf-8")
    with pytest.raises(TableError, match=r"rates\.csv, row 4"):
        module("importer").import_lab(tmp_path / "rates.csv")


def test_a_question_of_ones_own_is_asked_of_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written("question", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    names = [job.workload for job in load_table("cpu").jobs]
    jobs = tuple(
        TraceJob(job_id=f"{k}", workload=names[k % len(names)], arrival_s=100.0 * k, gpus=1, duration_s=90.0 * (k % 5))
        for k in range(1, 60)
        if k % 5
    )
    write_trace(tmp_path / "site", JobTrace(name="site", jobs=jobs))
    entries = {"question": "question_example:TailQuestion", "trace": tmp_path / "site", "table": "cpu", "gpus": 1}
    study = with_sources(study_of(entries), tmp_path)
    here, on_threads = (
        ask(study, TrainedModels(), runner).facts(())
        for runner in (Runner(), Runner(engine=module("engine").on_threads, folder=tmp_path / "results"))
    )
    assert [queue for _, queue, _ in here["tails"]] == ["fifo-easy", "sjf-easy"]
    assert here["tails"][1][2] > 0
    assert here == on_threads


def test_a_model_is_compared_beside_one_that_ships(tmp_path: Path) -> None:
    lines = run([sys.executable, written("model", tmp_path)], tmp_path).splitlines()
    errors = {name: float(error) for name, error in map(str.split, lines)}
    assert list(errors) == ["mean", "victim-mean"]
    assert 0 < errors["victim-mean"] < errors["mean"]


def test_a_model_is_exported_with_parity_and_may_become_the_champion() -> None:
    encoder, model = FeatureEncoder(), module("model").VictimMean()
    dataset = build_dataset([load_table("cpu")], encoder)
    fitted = model.fit(dataset, 0)
    exported = export_pair_graph(fitted, dataset, encoder)
    assert exported.max_error < 1e-6
    seen = dataset.take(dataset.rows.victim != 1)
    refitted = model.fit(seen, 0)
    assert refitted.mean_log[1] == refitted.mean_log[0]  # a victim that no row shows is an unknown one
    evaluations = evaluate_models(dataset, (*select_models("mean"), model), splits=("pair",))
    assert select_champion(evaluations) == "victim-mean"


def test_a_model_that_is_best_is_published_and_served(tmp_path: Path) -> None:
    models: dict[str, ModelSettings] = {made.name: made for made in (MeanModel(), module("model").VictimMean())}
    trained = train([shipped_table("cpu")], tmp_path, models=models)
    assert (trained.champion, trained.verdict.passed) == ("victim-mean", True)
    assert load_model(trained.folder, FeatureEncoder()).manifest.model == "victim-mean"
    assert "does not ship" in (trained.folder / "card.md").read_text(encoding="utf-8")


def test_an_objective_changes_the_plan_in_the_expected_way(tmp_path: Path) -> None:
    lines = run([sys.executable, written("objective", tmp_path)], tmp_path).splitlines()
    assert lines == [
        "default alone: gpt-decode status: OPTIMAL",
        "longest wait alone: gemm status: OPTIMAL",  # it was submitted a day ago, the others a minute ago
    ]


def test_an_objective_refuses_jobs_without_its_fields_and_takes_the_place_of_the_snapshots_own() -> None:
    jobs = (Job(id="a", workload="a", elapsed_s=1.0), Job(id="b", workload="b"))
    devices = (Device(id="d", type=DEVICE),)
    terms = (ObjectiveTerm(kind=ObjectiveKind.MAKESPAN),)  # would be refused: it cannot be a term, and lacks its fields
    predictor = TablePredictor({("a", "a"): 1.0, ("a", "b"): 1.5, ("b", "a"): 1.2, ("b", "b"): 1.0})

    def planned(*pending: Job) -> float:
        snapshot = Snapshot(pending=pending, devices=devices, objective_terms=terms)
        default = context(snapshot, predictor, resolver(profile("a"), profile("b")))
        return plan(replace(default, custom_objective=module("objective").LONGEST_WAIT)).objective_value

    with pytest.raises(InvalidInputError) as caught:
        planned(*jobs)
    assert [violation.field for violation in caught.value.violations] == ["pending[1].elapsed_s"]
    assert planned(jobs[0], Job(id="b", workload="b", elapsed_s=10.0)) == pytest.approx(1 * 0.5 + 10 * 0.2)


def test_a_report_is_a_page_a_print_and_a_document_for_programs(tmp_path: Path) -> None:
    printed = run([sys.executable, written("report", tmp_path), "cpu"], tmp_path)
    table = load_table("cpu")
    found: dict[str, list[float]] = {}
    for pair in table.ok_pairs:
        found.setdefault(pair.neighbour, []).append(pair.slowdown)
    worst = max(found, key=lambda name: geometric_mean(found[name]))
    assert f"Of 16 jobs, {worst} harms others most." in printed
    content = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    rows = content["parts"][1]["rows"]
    assert rows[0] == [worst, pytest.approx(geometric_mean(found[worst]))]
    page = Tree((tmp_path / "report.html").read_text(encoding="utf-8")).root
    assert len(page.all("circle")) == len(rows) == 16
    for name, slowdown in rows:
        assert f"{name:14}  {slowdown:16.2f}".rstrip() in printed
        assert f"{slowdown:.2f}" in page.words


def test_an_adapter_starts_what_the_plan_says_and_reports_it(tmp_path: Path) -> None:
    state, script = tmp_path / "state.json", written("adapter", tmp_path)
    jobs = [{"id": f"j{k}", "workload": name} for k, name in enumerate(("gemm", "request-server", "stream"))]
    state.write_text(json.dumps({"devices": ["d0"], "jobs": jobs}), encoding="utf-8")
    server = start_server(Settings(model=SHIPPED_MODEL, work=tmp_path / "work", port=0))

    def round_at(now_s: float) -> str:
        return run([sys.executable, script, str(state), server.address, str(now_s)], tmp_path).strip()

    def places() -> dict[str, str]:
        return {job["id"]: job.get("device", "") for job in json.loads(state.read_text(encoding="utf-8"))["jobs"]}

    try:
        assert round_at(100.0) == "[('j0', 'd0'), ('j1', 'd0'), ('j2', '')] {}"
        assert places() == {"j0": "d0", "j1": "d0", "j2": ""}
        assert round_at(110.0) == "[('j2', '')] {'applied': 2}"  # both are residents now, and the device is full
        assert round_at(120.0) == "[('j2', '')] {'duplicate': 2}"  # a process of its own, which repeats no id
        with PolicyClient(server.address) as client:
            outcomes = [entry.observation for entry in client.observation_log().entries]
        assert {(outcome.job_id, outcome.kind) for outcome in outcomes} == {("j0", "applied"), ("j1", "applied")}
        assert {outcome.observation_id for outcome in outcomes} == {"toy/toy/j0/started", "toy/toy/j1/started"}
    finally:
        server.stop()
    waiting = [{"id": "j9", "workload": "gemm"}]
    state.write_text(json.dumps({"devices": ["d0"], "jobs": waiting}), encoding="utf-8")
    assert round_at(130.0).startswith("[('j9', 'd0')]")  # the server is away: the fallback starts the job alone
    assert places() == {"j9": "d0"}


@pytest.mark.parametrize("name", ["importer", "model", "objective", "adapter"])
def test_a_recipe_is_short_and_imports_no_private_name(name: str) -> None:
    lines = [line for line in example(name).splitlines() if line.strip()]
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 120
    assert re.findall(r"import .*\b_\w+", example(name)) == []
