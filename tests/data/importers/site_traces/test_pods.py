"""The pods of a Kubernetes cluster, in the form of its API."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from interfere.commands.data.importing import app
from interfere.data.importers.site_traces import import_pods, read_workload_map
from interfere.data.traces import read_trace
from interfere.errors import TableError


def pod(name: str, created: str, gpus: tuple[int, ...], runs: tuple[tuple[str, str], ...], **labels: str) -> Any:
    """One pod with a container for each number of GPUs."""
    containers: list[Any] = [
        {"name": f"c{k}", "resources": {"limits": {"nvidia.com/gpu": str(n)}}} for k, n in enumerate(gpus)
    ]
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "creationTimestamp": f"2026-11-22T{created}Z",
            "labels": labels,
        },
        "spec": {"containers": containers, "serviceAccountName": "ann"},
        "status": {
            "phase": "Succeeded",
            "containerStatuses": [
                {"state": {"terminated": {"startedAt": f"2026-11-22T{a}Z", "finishedAt": f"2026-11-22T{b}Z"}}}
                for a, b in runs
            ],
        },
    }


def written(folder: Path, *items: Any) -> Path:
    (folder / "pods.json").write_text(json.dumps({"kind": "PodList", "items": items}) + "\n")
    return folder / "pods.json"


def items() -> list[Any]:
    train = pod("train-7", "10:00:00", (1, 1), (("10:01:00", "11:00:00"), ("10:02:00", "11:31:00")), app="bert")
    other = pod("resnet50-x", "09:00:00", (1,), (("09:00:30", "09:10:30"),))
    running = pod("bert-y", "10:00:00", (1,), ())
    web = pod("web", "08:00:00", (0,), (("08:00:00", "09:00:00"),))
    return [train, other, running, web]


def test_pods_with_devices_that_have_ended_are_the_trace(tmp_path: Path) -> None:
    (tmp_path / "map.csv").write_text("pattern,workload\nbert,bert-base\n")
    names = read_workload_map(tmp_path / "map.csv")
    imported = import_pods(written(tmp_path, *items()), workloads=names, name_label="app")
    assert imported.trace is not None
    rows = [
        (job.job_id, job.workload, job.arrival_s, job.gpus, job.duration_s, job.user, job.vc, job.status)
        for job in imported.trace.jobs
    ]
    assert rows == [
        ("uid-resnet50-x", "", 0.0, 1, 600.0, "ann", "ml", "succeeded"),
        ("uid-train-7", "bert-base", 3600.0, 2, 5400.0, "ann", "ml", "succeeded"),
    ]
    assert {notice.subject: notice.count for notice in imported.notices} == {
        "pods without nvidia.com/gpu": 1,
        "pods that have not run or ended": 1,
        "pods whose name no pattern matches": 1,
    }


def test_other_documents_are_refused_with_what_they_hold(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"nodes": [], "version": 1}\n')
    with pytest.raises(TableError, match="not a list of pods") as raised:
        import_pods(path)
    assert "found nodes, version" in str(raised.value)
    with pytest.raises(TableError, match=r"item 0: not a pod \(KeyError: 'spec'\)"):
        import_pods(written(tmp_path, {"metadata": {"name": "x"}}))


def test_the_command(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["pods", str(written(tmp_path, *items())), "--out", str(tmp_path / "trace")])
    assert ran.exit_code == 0, ran.output
    assert [job.workload for job in read_trace(tmp_path / "trace").jobs] == ["resnet50-x", "train-7"]
