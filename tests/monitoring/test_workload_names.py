"""Pods of one owner have one workload; different workloads keep their names."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from interfere.data.importers.site_traces import read_workload_map
from interfere.monitoring.dcgm import workload_of_pod
from interfere.monitoring.dcgm_import import import_dcgm
from interfere.monitoring.naming_hints import name_templates, naming_hint
from interfere.monitoring.samples import SampleSeries
from interfere.monitoring.settings import MonitoringSettings
from interfere.monitoring.site_labels import SiteLabels
from tests.monitoring.monitored_site import answer, counter, gauge, write


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        ("bert-7d9f8b6c5d-x2k4q", "bert"),  # Deployment
        ("bert-serve-6c9b7d5f4-zzzzz", "bert-serve"),
        ("bert-train-lq8zn", "bert-train"),  # Job
        ("train-2-xk7gw", "train"),  # indexed Job
        ("nightly-28374650-h7xwz", "nightly"),  # CronJob
        ("db-0", "db"),  # StatefulSet
        ("llm-worker-11", "llm"),  # training operators
        ("llm-master-0", "llm"),
        ("resnet-50", "resnet-50"),  # a name, not an ordinal
        ("bert-train", "bert-train"),
        ("gpt2-xl", "gpt2-xl"),
        ("a", "a"),
        ("-0", "-0"),
    ],
)
def test_what_kubernetes_appends_is_taken_off_and_nothing_else(pod: str, workload: str) -> None:
    assert workload_of_pod(pod) == workload


def test_pods_of_two_deployments_are_one_pair_by_default_and_none_by_pod(tmp_path: Path) -> None:
    alone_a, shared, alone_b = range(10), range(10, 20), range(20, 30)
    active, pods = (
        "DCGM_FI_PROF_SM_ACTIVE",
        ("a-6c9b7d5f4-xxxxx", "a-6c9b7d5f4-zzzzz", "b-7d9f8b6c5d-x2k4q", "b-7d9f8b6c5d-k2k4q"),
    )
    document = answer(
        gauge(active, pods[0], alone_a, 0.5),
        gauge(active, pods[1], shared, 0.9),
        gauge(active, pods[2], shared, 0.9),
        gauge(active, pods[3], alone_b, 0.25),
        counter(pods[0], [(alone_a, 4.0)]),
        counter(pods[1], [(shared, 2.0)]),
        counter(pods[2], [(shared, 4.0)]),
        counter(pods[3], [(alone_b, 5.0)]),
    )
    path = write(tmp_path, document)
    got = import_dcgm(path, step_metric="train_steps_total")
    assert {(pair.victim, pair.neighbour): pair.slowdown for pair in got.pairs} == pytest.approx(
        {("a", "b"): 2.0, ("b", "a"): 1.25}
    )
    assert import_dcgm(path, by="pod", step_metric="train_steps_total").pairs == ()


@pytest.mark.parametrize(
    ("by", "labels", "workload"),
    [
        ("workload", {"pod": "sdxl-gen-45"}, "sdxl"),
        ("workload", {"pod": "bert-7d9f8b6c5d-x2k4q"}, "nlp"),  # by what is left of the name
        ("workload", {"pod": "canary-x2k4q"}, "canary test"),  # by the name in full
        ("workload", {"pod": "whisper-0"}, "whisper"),  # no row
        ("hpc_job", {"hpc_job": "123_4"}, "array"),
        ("namespace+workload", {"pod": "llm-worker-11", "namespace": "ml"}, "ml/llm"),
    ],
)
def test_the_file_of_names_overrides_what_the_name_of_a_pod_says(
    tmp_path: Path, by: str, labels: dict[str, str], workload: str
) -> None:
    rows = (
        "^sdxl-gen-,sdxl",
        "^bert$,nlp",
        "^canary-x,canary test",
        r"^123_\d+$,array",
        "^llm,wrong",
    )
    names = tmp_path / "names.csv"
    names.write_text("\n".join(("pattern,workload", *rows)) + "\n")
    settings = MonitoringSettings(by=by, workloads=read_workload_map(names))
    series = SampleSeries.from_samples("DCGM_FI_DEV_GPU_UTIL", labels, np.array([0.0]), np.array([1.0]))
    job = SiteLabels(settings, labels).job(series)
    assert job is not None
    assert job.workload == workload
    assert job.id in ("/".join(labels[name] for name in ("namespace", "pod") if name in labels), labels.get("hpc_job"))


SIX = {
    "StatefulSet": ("web", [f"web-{k}" for k in range(14)]),
    "Job": ("train", ["train-x7k2p", "train-lq8zn", "train-zzzzz"]),
    "Deployment": ("api", ["api-6f7d9c5b8-bcdfg", "api-6f7d9c5b8-xxxxx", "api-7d9f8b6c5d-x2k4q"]),
    "numbered": ("sdxl-gen", ["sdxl-gen-45", "sdxl-gen-46", "sdxl-gen-1046"]),
    "Slurm array": ("123", ["123_4", "123_5", "123_16"]),
    "hash": ("etl", ["etl-3fa9c1d2", "etl-b07e55aa", "etl-9912cdef"]),
}


def workloads(pods: list[str], settings: MonitoringSettings) -> dict[str, str]:
    """The workload of each job that dcgm-exporter's series of these pods name."""
    every = [SampleSeries.from_samples("D", {"pod": pod}, np.array([0.0]), np.array([1.0])) for pod in pods]
    jobs = [SiteLabels(settings, ("pod",)).job(each) for each in every]
    return {job.id: job.workload for job in jobs if job is not None}


def test_six_owners_are_six_workloads_once_the_proposed_rows_are_taken(tmp_path: Path) -> None:
    pods = [pod for _, of_owner in SIX.values() for pod in of_owner]
    before = workloads(pods, MonitoringSettings())
    assert len(set(before.values())) > 10
    proposed = name_templates(before)
    assert {each.text for each in proposed} == {"web-*", "sdxl-gen-*", "123_*", "etl-*"}
    hint = naming_hint(before, (), "workload")
    assert all(each.row in hint for each in proposed)
    (names := tmp_path / "names.csv").write_text(
        "\n".join(("pattern,workload", *(each.row for each in proposed))) + "\n"
    )
    after = workloads(pods, MonitoringSettings(workloads=read_workload_map(names)))
    assert after == {pod: workload for workload, of_owner in SIX.values() for pod in of_owner}
    assert name_templates(after) == ()


def test_names_that_recur_or_that_end_in_a_version_are_no_template() -> None:
    assert name_templates({f"j{k}": f"resnet-{(18, 50)[k % 2]}" for k in range(8)}) == ()
    assert name_templates({"a": "gpt2", "b": "gpt3", "c": "v100-test"}) == ()
    assert name_templates({"a": "web-10"}) == ()
    assert [each.text for each in name_templates({"a": "llama-7-run-1", "b": "llama-7-run-2"})] == ["llama-7-run-*"]
    assert [each.row for each in name_templates({"a": "ml/gen-1/main", "b": "ml/gen-2/main"})] == [
        r"^ml/gen-\d+/main$,ml/gen-*/main"
    ]


def test_the_audit_says_which_rows_make_one_workload_and_takes_them(tmp_path: Path) -> None:
    """The commands, from the hint to the file of names."""
    active = "DCGM_FI_PROF_SM_ACTIVE"
    pods = [f"gen-{k}" for k in (45, 46, 47)]
    parts = [range(20 * k, 20 * k + 20) for k in range(3)]
    samples = [gauge(active, pod, part, 0.5) for pod, part in zip(pods, parts, strict=True)]
    steps = [counter(pod, [(part, 2.0)]) for pod, part in zip(pods, parts, strict=True)]
    write(tmp_path / "saved", answer(*samples, *steps))
    command = [sys.executable, "-m", "interfere", "audit", "--from-files", "saved", "--progress", "train_steps_total"]

    def audited(*options: str) -> dict[str, Any]:
        ran = subprocess.run([*command, "--json", *options], capture_output=True, text=True, cwd=tmp_path, check=False)
        assert ran.returncode == 0, ran.stderr
        return cast("dict[str, Any]", json.loads(ran.stdout))

    before = audited()
    assert {each["workload"] for each in before["workloads"]} == set(pods)
    row = before["hint"].split("pattern,workload ")[1].split(";")[0]
    (tmp_path / "names.csv").write_text(f"pattern,workload\n{row}\n")
    after = audited("--workloads", "names.csv")
    assert [(each["workload"], each["jobs"]) for each in after["workloads"]] == [("gen", 3)]
