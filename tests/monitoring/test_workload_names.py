"""Pods of one owner have one workload; different workloads keep their names."""

from pathlib import Path

import pytest

from interfere.monitoring.dcgm import workload_of_pod
from interfere.monitoring.dcgm_import import import_dcgm
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
