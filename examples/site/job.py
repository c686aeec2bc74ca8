"""One job of the site: a built-in workload that runs its steps, marks them, and can be stopped and started again.

    python -m examples.site.job WORKLOAD STEPS FOLDER

Under Slurm it writes `run.JOB.RANK.RESTART.json` into the folder when it ends. A gang (SLURM_NTASKS above 1) meets at
a barrier after every step, so its slowest rank sets the pace. SIGTERM ends it after the step that runs; it notes how
many steps are done, and the next start of the same job goes on from there.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interfere import progress
from interfere.file_writing import write_text


class CountedPause:
    """Sleeps, and adds up the seconds asked for."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, seconds: float) -> None:
        """Wait as the workload does for input or requests."""
        self.seconds += seconds
        time.sleep(seconds)


def barrier_of(folder: Path, job: str, rank: int, ranks: int) -> Callable[[], Any]:
    """Return a function that waits until every rank of the job has called it."""
    if ranks == 1:
        return lambda: None
    from torch import distributed

    meeting = folder / f"meeting.{job}.{os.environ.get('SLURM_RESTART_COUNT', '0')}"
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    barrier: Callable[[], Any] = distributed.barrier
    return barrier


def run(workload: str, steps: int, folder: Path) -> dict[str, Any]:
    """Run the job to its end, or until it is told to stop. Returns what is written at its end."""
    begin_s = time.time()
    job, rank = os.environ.get("SLURM_JOB_ID", "0"), int(os.environ.get("SLURM_PROCID", "0"))
    ranks, restarts = int(os.environ.get("SLURM_NTASKS", "1")), int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    checkpoint = folder / f"checkpoint.{job}"
    done = int(checkpoint.read_text()) if checkpoint.exists() else 0
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    from interfere.profiling.workloads import find_workload, needs_torch

    if needs_torch(workload) or ranks > 1:
        import torch

        torch.set_num_threads(1)
    pause, step = CountedPause(), find_workload(workload).build()
    meet = barrier_of(folder, job, rank, ranks)
    step(pause)  # the first step allocates and compiles: it belongs to the start-up
    meet()
    loaded_cpu_s, loaded_s = time.process_time(), time.time()
    pause.seconds = 0.0
    first = done
    while done < steps and not stopped:
        step(pause)
        meet()
        done += 1
        if rank == 0:
            progress.step()
    if stopped and rank == 0:
        write_text(checkpoint, str(done))
    return {
        "job": job,
        "rank": rank,
        "restart": restarts,
        "workload": workload,
        "node": os.environ.get("SLURMD_NODENAME", ""),
        "begin_s": begin_s,
        "loaded_s": loaded_s,
        "end_s": time.time(),
        "start_up_cpu_s": loaded_cpu_s,
        "cpu_s": time.process_time() - loaded_cpu_s,
        "pause_s": pause.seconds,
        "steps": done - first,
        "complete": done >= steps,
    }


def main() -> None:
    """Run the job that the command line names."""
    workload, steps, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    result = run(workload, steps, folder)
    name = f"run.{result['job']}.{result['rank']}.{result['restart']}.json"
    write_text(folder / name, json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
