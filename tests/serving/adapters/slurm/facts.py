"""Jobs, nodes and settings for the pure tests, and the JSON that Slurm would write of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interfere.records import Action, Plan, SolveStatus
from interfere.serving.adapters.slurm.jobs import Gpu, GpuAddress, Held, Node, Note, SlurmJob
from interfere.serving.adapters.slurm.settings import DeviceRule, SlurmSettings

NOW = 1_700_000_000.0
SETTINGS = SlurmSettings(devices=(DeviceRule(type="cpu-core"),), cluster="c", spool=Path("/nonexistent"))


def pending(job_id: int, workload: str = "gemm", **given: Any) -> SlurmJob:
    """A deferred job of one shard."""
    values: dict[str, Any] = {
        "note": Note(),
        "tres": "gres:shard:1",
        "partition": "main",
        "submit_s": NOW - 10.0,
        "eligible_s": NOW + 10.0,
        "comment": f"interfere:workload={workload}",
        "state": "PENDING",
        "priority": 1000 - job_id,
    }
    return SlurmJob(id=str(job_id), **(values | given))


def running(job_id: int, gpu: str, workload: str = "gemm", start_s: float = NOW - 100.0, **given: Any) -> SlurmJob:
    """A job on one shard of n0."""
    values: dict[str, Any] = {
        "state": "RUNNING",
        "tres": "gres:shard:1",
        "partition": "main",
        "node": "n0",
        "start_s": start_s,
        "held": (Held("shard", GpuAddress(str(given.get("node", "n0")), gpu), 1),),
        "comment": f"interfere:workload={workload}",
        "submit_s": start_s,
    }
    return SlurmJob(id=str(job_id), **(values | given))


def node(name: str = "n0", *, shards: int = 2, usable: bool = True, gpus: int = 2) -> Node:
    return Node(
        name=name,
        usable=usable,
        partitions=("main",),
        gpus=tuple(Gpu(address=GpuAddress(name, f"g{k}"), index=k, shards=shards) for k in range(gpus)),
    )


def job_row(job_id: int, workload: str = "gemm", **given: Any) -> dict[str, Any]:
    """One pending job as squeue 22.05 writes it."""
    return {
        "job_id": job_id,
        "job_state": "PENDING",
        "state_reason": "BeginTime",
        "admin_comment": "interfere:deferred",
        "comment": f"interfere:workload={workload}",
        "tres_per_node": "gres:shard:1",
        "partition": "main",
        "user_id": 1000,
        "priority": 1000,
        "submit_time": int(NOW),
        "eligible_time": int(NOW) + 20,
        "start_time": 0,
        "end_time": 0,
        "restart_cnt": 0,
        "nodes": "",
        "gres_detail": [],
        "node_count": 1,
        "array_job_id": 0,
        "array_task_id": None,
        "het_job_id": 0,
        "required_nodes": "",
        "excluded_nodes": "",
        "features": "",
    } | given


def node_row(name: str, gpus: int = 2, **given: Any) -> dict[str, Any]:
    """One node as sinfo 22.05 writes it."""
    gres = ",".join([*(f"gpu:g{k}:1" for k in range(gpus)), *(f"shard:g{k}:2" for k in range(gpus))])
    return {"name": name, "state": "idle", "state_flags": [], "partitions": ["main"], "gres": gres} | given


def squeue(rows: Sequence[dict[str, Any]]) -> str:
    return json.dumps({"meta": {}, "errors": [], "jobs": list(rows)})


def sinfo(rows: Sequence[dict[str, Any]]) -> str:
    return json.dumps({"meta": {}, "errors": [], "nodes": list(rows)})


def plan_of(*actions: Action) -> Plan:
    return Plan(
        decision_id="d",
        model_version="m",
        actions=actions,
        pairs=(),
        refused=(),
        refused_total=0,
        cost=0.0,
        greedy_cost=0.0,
        greedy_waiting=0,
        lower_bound=0.0,
        gap=0.0,
        status=SolveStatus.OPTIMAL,
    )
