"""The devices of a node by the UUIDs of its GPUs: settings, what nvidia-smi lists, what is published and granted.

nvidia-smi is recorded; agent, server and processes are real.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.client import PolicyClient
from interfere.commands.grants import app as grants_app
from interfere.errors import InvalidInputError, NotFoundError, UnfitError
from interfere.profiling.programs.device_admission import admit, read_devices
from interfere.profiling.programs.process_tree import start_time
from interfere.profiling.programs.started_jobs import JobRecord
from interfere.records import MemoryUsage
from interfere.serving.adapters.node.agent import app
from interfere.serving.adapters.node.port import NodeDevice, NodeSettings, published_devices
from interfere.serving.server import RunningServer

GIB = 2.0**30
UUIDS = ("GPU-5ad6e4f2-0c1d-4b9e-8f6a-2d7c1e3b4a59", "GPU-77b0a9c3-9e8f-4d21-b6c5-0f1e2d3c4b5a")
LISTED = "\n".join(f"{k}, {uuid}, NVIDIA A100-SXM4-80GB, 550.54.15, 1410, Disabled" for k, uuid in enumerate(UUIDS))
# What nvidia-smi 550 prints for --query-gpu and for --query-compute-apps with --format=csv,noheader,nounits.
SMI = """#!{python}
import sys
from pathlib import Path
if "compute-apps" in sys.argv[1]:
    uuid = next(word.removeprefix("--id=") for word in sys.argv if word.startswith("--id="))
    print((Path(__file__).parent / uuid).read_text(), end="")
else:
    print({listed!r})
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], object]:
    """A node of two A100; the function records which processes hold memory on one of them."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(SMI.format(python=sys.executable, listed=LISTED))
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for uuid in UUIDS:
        (folder / uuid).touch()
    return lambda uuid, rows: (folder / uuid).write_text(rows)


def gpu(uuid: str, **given: object) -> NodeDevice:
    values = {"type": "cpu-core", "memory_gib": 4.0, "granule_gib": 0.5, "oversubscription_ratio": 1.5}
    return NodeDevice(**{"gpu_uuid": uuid} | values | given)  # type: ignore[arg-type]


def test_a_gpu_is_named_by_its_uuid_in_decisions_grants_and_windows(
    smi: Callable[[str, str], object], client: PolicyClient, server: RunningServer, tmp_path: Path
) -> None:
    # 1. The agent publishes both GPUs, and a job starts on one.
    config, jobs = tmp_path / "agent.toml", tmp_path / "jobs"
    rows = (
        f'[[devices]]\ngpu_uuid = "{uuid}"\ntype = "cpu-core"\nmemory_gib = 4\ngranule_gib = 0.5\n' for uuid in UUIDS
    )
    head = f'node = "n"\njobs = "{jobs}"\nserver = "{server.address}"\nmax_gap_s = 60\nreport_every_s = 0.001\n'
    config.write_text(head + "".join(rows))

    def sample() -> None:
        done = CliRunner().invoke(app, ["--config", str(config), "--once", "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output

    sample()
    published = read_devices(jobs)
    assert published is not None
    assert [(each.id, each.gpu_uuid, each.granules) for each in published.devices] == [
        (uuid, uuid, 8) for uuid in UUIDS
    ]
    pid = os.getpid()
    record = JobRecord(
        job_id="j",
        workload="w",
        device_id=UUIDS[1],
        memory_bytes=1.2 * GIB,
        supervisor_pid=pid,
        supervisor_start=start_time(pid),
        since_s=1.0,
        token="t" * 32,
    )
    admit(jobs, record)
    # 2. Its grant is by the UUID, in the table that the command prints.
    sample()
    target = ["--target", server.address, "--scope", "nodes/n"]
    shown = json.loads(CliRunner().invoke(grants_app, [*target, "--device", UUIDS[1], "--json"]).stdout)
    assert [(row["device_id"], row["granted"]) for row in shown["devices"]] == [(f"n/{UUIDS[1]}", 3)]
    assert [(row["job_id"], row["device_id"], row["granules"]) for row in shown["grants"]] == [
        ("j", f"n/{UUIDS[1]}", 3)
    ]
    with pytest.raises(NotFoundError, match=f"did you mean n/{UUIDS[0]}"):
        CliRunner().invoke(grants_app, [*target, "--device", f"n/{UUIDS[0]}0"], catch_exceptions=False)


def test_memory_of_a_process_on_its_gpu_is_reported_by_uuid(
    smi: Callable[[str, str], object], client: PolicyClient, server: RunningServer, tmp_path: Path
) -> None:
    from interfere.serving.adapters.metrics import AdapterMetrics
    from interfere.serving.adapters.node.port import NodePort
    from interfere.serving.adapters.round import Advisor

    settings = NodeSettings(
        server=server.address,
        node="n",
        jobs=tmp_path / "jobs",
        max_gap_s=60.0,
        report_every_s=0.001,
        devices=(gpu(UUIDS[0]), gpu(UUIDS[1])),
    )
    child = os.fork()
    if child == 0:
        import time

        time.sleep(600)
        os._exit(0)
    try:
        record = JobRecord(
            job_id="j",
            workload="w",
            device_id=UUIDS[1],
            memory_bytes=2 * GIB,
            supervisor_pid=os.getpid(),
            supervisor_start=start_time(os.getpid()),
            since_s=1.0,
            token="t" * 32,
        )
        admit(settings.jobs, record)
        smi(UUIDS[0], f"{child}, python3, 4000\n")  # of another GPU
        smi(UUIDS[1], f"{child}, python3, 1536\n999999, python3, 2000\n")  # and of another process
        port = NodePort(settings, enforce=False)
        advisor = Advisor(port, client, port, settings, AdapterMetrics("node", {}))
        for _ in range(2):
            advisor.round()
        entries = (entry.observation for entry in client.observation_log(limit=100).entries)
        (window,) = [each for each in entries if isinstance(each, MemoryUsage)]
        assert (window.device_id, window.bytes) == (f"n/{UUIDS[1]}", 1.5 * GIB)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_a_uuid_that_the_machine_has_not_is_refused(smi: Callable[[str, str], object]) -> None:
    def publish(*devices: NodeDevice, **given: object) -> object:
        return published_devices(NodeSettings(devices=devices, **given), enforced=True)  # type: ignore[arg-type]

    with pytest.raises(NotFoundError, match=f"no GPU of this machine has this UUID(.|\n)*did you mean {UUIDS[0]}"):
        publish(gpu(UUIDS[0][:-1] + "0"))
    with pytest.raises(UnfitError, match="partition of a GPU"):
        publish(gpu("MIG-5ad6e4f2-0c1d-4b9e-8f6a-2d7c1e3b4a59"))
    with pytest.raises(UnfitError, match=r"cannot back .*\n?.*set host_reserve_gib"):
        publish(gpu(UUIDS[0], memory_gib=1e6))
    publish(gpu(UUIDS[0], memory_gib=1e6), host_reserve_gib=0.001)


def test_without_a_driver_no_gpu_is_assumed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotFoundError, match="no NVIDIA driver"):
        published_devices(NodeSettings(devices=(gpu(UUIDS[0]),)), enforced=True)


def test_settings_name_each_gpu_once_and_by_its_uuid() -> None:
    for uuid in ("0", "5ad6e4f2-0c1d"):
        with pytest.raises(InvalidInputError, match="nvidia-smi -L lists the UUIDs"):
            gpu(uuid)
    with pytest.raises(InvalidInputError, match="is needed, or gpu_uuid"):
        gpu("")
    with pytest.raises(InvalidInputError, match="two have one gpu_uuid"):
        NodeSettings(devices=(gpu(UUIDS[0]), gpu(UUIDS[0], id="other")))
    assert gpu(UUIDS[0]).id == UUIDS[0]
    assert gpu(UUIDS[0], id="g0").id == "g0"
