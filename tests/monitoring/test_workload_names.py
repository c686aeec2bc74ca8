"""Pods of one owner have one workload; different workloads keep their names."""

from pathlib import Path

import numpy as np
import pytest

from interfere.data.importers.site_traces import read_workload_map
from interfere.monitoring.dcgm import workload_of_pod
from interfere.monitoring.dcgm_import import import_dcgm
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
