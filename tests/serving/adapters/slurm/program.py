"""A job that slows itself by a known table, according to who shares its GPU: program.py WORKLOAD STEPS STEP_S FOLDER.

It finds its GPU as a real job does (node name, SLURM_JOB_GPUS), its company through FOLDER, and marks its steps.
"""

import json
import os
import sys
import time
from pathlib import Path

from interfere import progress


def main() -> None:
    workload, steps, step_s, folder = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])
    table = json.loads((folder / "table.json").read_text())
    job, device = os.environ["SLURM_JOB_ID"], f"{os.environ['SLURMD_NODENAME']}/g{os.environ['SLURM_JOB_GPUS']}"
    here = folder / device
    here.mkdir(parents=True, exist_ok=True)
    own = here / f"{job}.{workload}"
    own.touch()
    company: dict[str, int] = {}
    begin_s = due_s = time.time()
    try:
        for _ in range(steps):
            others = [path.name for path in here.iterdir() if path.name != own.name]
            slowdown = 1.0
            for other in others:
                slowdown *= table[workload][other.partition(".")[2]]
                company[other] = company.get(other, 0) + 1
            due_s += step_s * slowdown
            time.sleep(max(0.0, due_s - time.time()))  # what the loop itself takes is no slowdown
            progress.step()
    finally:
        own.unlink()
    result = {
        "job": job,
        "workload": workload,
        "device": device,
        "begin_s": begin_s,
        "end_s": time.time(),
        "slowdown": (time.time() - begin_s) / (steps * step_s),
        "company": company,
        "runs": len(list(folder.glob(f"run.{job}.*"))) + 1,
    }
    (folder / f"run.{job}.{os.getpid()}").write_text(json.dumps(result))


main()
