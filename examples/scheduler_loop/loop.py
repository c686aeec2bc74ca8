"""A scheduler loop in Python: queue and devices → match → start → observe → explain.

    python loop.py [ADDRESS]

The cluster is simulated. In a scheduler of your own, replace the three functions of the first section.
"""

import sys
import time

from interfere import ActionKind, Device, InterfereError, Job, Plan, PolicyClient, Progress, Snapshot
from interfere.client import AloneFallback
from interfere.errors import RetryableError, UnavailableError

ROUND_S = 60.0  # one round of the simulated clock
PAUSES_S = (0.2, 0.4)  # between three attempts
STARTS = (ActionKind.START_ALONE, ActionKind.START_SHARED)

# --- The simulated cluster --------------------------------------------------------------------------------------------

STEP_S = {"gemm": 0.005, "request-server": 0.003, "gpt-decode": 0.003, "stream": 0.02, "rl-rollout": 0.02}  # alone
queue = [Job(id=f"j{k}", workload=workload) for k, workload in enumerate(STEP_S, start=1)]
residents: dict[str, list[Job]] = {"d0": [], "d1": []}


def start_job(job: Job, device_id: str) -> None:
    """Start a job on a device."""
    queue.remove(job)
    residents[device_id].append(job)


def count_steps(job: Job, device_id: str) -> float:
    """Return the steps that a job did in this round: beside others it is slowed 1.2 times."""
    return ROUND_S / STEP_S[job.workload] / (1.0 if residents[device_id] == [job] else 1.2)


def end_jobs(round_number: int) -> None:
    """Jobs of the simulation end after every second round."""
    for jobs in residents.values() if round_number % 2 == 0 else ():
        jobs.clear()


# --- The loop ---------------------------------------------------------------------------------------------------------


def match(client: PolicyClient, snapshot: Snapshot) -> Plan:
    """Ask for a plan: three attempts, then jobs start alone without the server.

    The snapshot id makes a repeated request safe: the server answers it with the stored decision.
    """
    for pause_s in PAUSES_S:
        try:
            return client.match(snapshot)
        except RetryableError as error:
            print(f"again: {error.code}")
            time.sleep(error.retry_after_s or pause_s)
    try:
        return client.match(snapshot)
    except RetryableError as error:
        return AloneFallback().match(snapshot, UnavailableError(error.code))


def explain(client: PolicyClient, plan: Plan, job_id: str) -> None:
    """Print the best alternative to what was decided for a job. A failure is no reason to stop the loop."""
    try:
        explanation = client.explain(plan.decision_id, job_id)
    except InterfereError as error:
        print(f"  no explanation: {error.one_line}")
        return
    others = [f"{a.kind} {a.partner_id}" for a in explanation.alternatives if not a.chosen]
    print(f"  {job_id} else: {others[0] if others else 'nothing'}")


def observe(client: PolicyClient, unsent: list[Progress]) -> None:
    """Report windows. Those that are not delivered stay in `unsent`; their ids make sending them again safe."""
    try:
        answers = client.observe(unsent)
    except RetryableError as error:
        print(f"kept {len(unsent)} windows: {error.code}")
        return
    unsent.clear()
    print("observed:", *(answer.result for answer in answers))


def main(address: str) -> None:
    """Run rounds until the queue is empty."""
    run, round_number, unsent = f"python-{time.time_ns()}", 0, list[Progress]()
    with PolicyClient(address) as client:
        while queue:
            round_number += 1
            devices = tuple(Device(id=d, type="cpu-core", residents=tuple(jobs)) for d, jobs in residents.items())
            plan = match(client, Snapshot(snapshot_id=f"{run}-{round_number}", pending=tuple(queue), devices=devices))
            jobs = {job.id: job for job in queue}
            for action in plan.actions:
                print(round_number, action.job_id, action.kind, action.device_id or "-", action.reason)
                if action.kind in STARTS:
                    start_job(jobs[action.job_id], action.device_id)
                if plan.decision_id:  # empty: the server is away
                    explain(client, plan, action.job_id)
            for device_id, here in residents.items():
                for job in here:
                    unsent.append(
                        Progress(
                            observation_id=f"{run}-{round_number}-{job.id}",
                            job_id=job.id,
                            workload=job.workload,
                            device_type="cpu-core",
                            start_s=(round_number - 1) * ROUND_S,
                            end_s=round_number * ROUND_S,
                            company=tuple(other.workload for other in here if other is not job),
                            steps=count_steps(job, device_id),
                        )
                    )
            observe(client, unsent)
            end_jobs(round_number)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051")
