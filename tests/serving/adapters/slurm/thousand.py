"""A cluster on paper: 1,000 pending jobs, 128 GPUs of which 16 are free and the others have two residents each."""

import time
from typing import Any

from tests.serving.adapters.slurm.facts import job_row, node_row, sinfo, squeue

PENDING, NODES, GPUS = 1_000, 16, 8
WORKLOADS = ("gemm", "resnet-train", "request-server", "rl-rollout", "stream", "lstm-train")


def jobs_and_nodes() -> tuple[str, str]:
    """What squeue and sinfo say. The deferrals of the first 300 jobs are more than half over."""
    now = int(time.time())
    rows: list[dict[str, Any]] = [
        job_row(
            k,
            WORKLOADS[k % len(WORKLOADS)],
            submit_time=now - 30,
            eligible_time=now + (5 if k <= 300 else 19),
            priority=5_000 - k,
        )
        for k in range(1, PENDING + 1)
    ]
    job = PENDING
    for n in range(NODES - 2):
        for g in range(GPUS):
            for _ in range(2):
                job += 1
                rows.append(
                    job_row(
                        job,
                        WORKLOADS[job % len(WORKLOADS)],
                        job_state="RUNNING",
                        nodes=f"n{n}",
                        gres_detail=[f"shard:g{g}:1(IDX:{g})"],
                        start_time=now - 500,
                        submit_time=now - 600,
                    )
                )
    return squeue(rows), sinfo([node_row(f"n{n}", GPUS) for n in range(NODES)])
