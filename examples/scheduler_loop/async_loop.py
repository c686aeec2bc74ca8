"""A scheduler loop in asyncio, with the generated messages: queue and devices → match → start → observe → explain.

    INTERFERE_TOKEN=... python async_loop.py [ADDRESS]

The cluster is simulated. In a scheduler of your own, replace the first section.
"""

import asyncio
import os
import sys
import time

import grpc
from grpc import StatusCode

from interfere.v1 import policy_pb2 as pb
from interfere.v1.policy_pb2_grpc import PolicyServiceStub

ROUND_S = 60.0  # one round of the simulated clock
PAUSES_S = (0.2, 0.4, None)  # after each of three attempts
MAY_PASS = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.RESOURCE_EXHAUSTED)
STARTS = (pb.ACTION_KIND_START_ALONE, pb.ACTION_KIND_START_SHARED)

# --- The simulated cluster --------------------------------------------------------------------------------------------

STEP_S = {"gemm": 0.005, "request-server": 0.003, "gpt-decode": 0.003, "stream": 0.02, "rl-rollout": 0.02}  # alone
queue = {f"j{k}": pb.Job(id=f"j{k}", workload=workload) for k, workload in enumerate(STEP_S, start=1)}
devices = [pb.Device(id=name, type="cpu-core") for name in ("d0", "d1")]


def start_job(job_id: str, device_id: str) -> None:
    """Start a job on a device."""
    (device,) = [each for each in devices if each.id == device_id]
    device.residents.append(queue.pop(job_id))


def count_steps(job: pb.Job, device: pb.Device) -> float:
    """Return the steps that a job did in this round: beside others it is slowed 1.2 times."""
    return ROUND_S / STEP_S[job.workload] / (1.0 if len(device.residents) == 1 else 1.2)


def end_jobs(number: int) -> None:
    """Jobs of the simulation end after every second round."""
    for device in devices if number % 2 == 0 else ():
        del device.residents[:]


# --- The loop ---------------------------------------------------------------------------------------------------------


class Loop:
    """One scheduler: a connection, the name of this run, and the windows that no server has yet."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub = PolicyServiceStub(channel)
        self.run, self.unsent = f"async-{time.time_ns()}", list[pb.Observation]()

    async def call(self, method: str, request: object) -> object:
        """Call a method with the token of the environment and a deadline of ten seconds."""
        metadata = (("authorization", f"Bearer {os.environ.get('INTERFERE_TOKEN', '')}"),)
        return await getattr(self.stub, method)(request, timeout=10.0, metadata=metadata)

    async def match(self, number: int) -> pb.MatchResponse:
        """Ask for a plan: three attempts, then the first jobs start alone. The snapshot id makes a repetition safe."""
        request = pb.MatchRequest(snapshot_id=f"{self.run}-{number}", pending=queue.values(), devices=devices)
        for pause_s in PAUSES_S:
            try:
                return await self.call("Match", request)
            except grpc.aio.AioRpcError as error:
                if error.code() not in MAY_PASS:
                    raise
                print("failed:", error.code().name)
                await asyncio.sleep(pause_s or 0.0)
        idle_devices = [device.id for device in devices if not device.residents]
        start = {"kind": pb.ACTION_KIND_START_ALONE, "reason": "the server is away"}
        return pb.MatchResponse(
            actions=[pb.Action(job_id=j, device_id=d, **start) for j, d in zip(queue, idle_devices, strict=False)]
        )

    async def explain(self, decision_id: str, job_id: str) -> str:
        """Return the best alternative to what was decided for a job. A failure is no reason to stop the loop."""
        try:
            answer = await self.call("Explain", pb.ExplainRequest(decision_id=decision_id, job_id=job_id))
        except grpc.aio.AioRpcError as error:
            return f"  {job_id}: no explanation: {error.details()}"
        others = [f"{pb.ActionKind.Name(a.kind)} {a.partner_id}" for a in answer.alternatives if not a.chosen]
        return f"  {job_id} else: {others[0] if others else 'nothing'}"

    async def observe(self, number: int) -> None:
        """Report the windows. Those that are not delivered are kept; their ids make a repetition safe."""
        start_s = (number - 1) * ROUND_S
        for device in devices:
            for job in device.residents:
                window = pb.Progress(job_id=job.id, workload=job.workload, device_type=device.type, start_s=start_s)
                window.end_s, window.steps = start_s + ROUND_S, count_steps(job, device)
                window.company.extend(other.workload for other in device.residents if other.id != job.id)
                self.unsent.append(pb.Observation(observation_id=f"{self.run}-{number}-{job.id}", progress=window))
        try:
            report = await self.call("ReportObservations", pb.ReportObservationsRequest(observations=self.unsent))
        except grpc.aio.AioRpcError as error:
            if error.code() not in MAY_PASS:
                raise
            print(f"kept {len(self.unsent)} windows: {error.code().name}")
            return
        self.unsent.clear()
        print("observed:", *(pb.ObservationResult.Name(answer.result) for answer in report.answers))


async def main(address: str) -> None:
    """Run rounds until the queue is empty."""
    async with grpc.aio.insecure_channel(address) as channel:
        loop, number = Loop(channel), 0
        while queue:
            number += 1
            plan = await loop.match(number)
            for action in plan.actions:
                print(number, action.job_id, pb.ActionKind.Name(action.kind), action.device_id or "-", action.reason)
                if action.kind in STARTS:
                    start_job(action.job_id, action.device_id)
            if plan.decision_id:  # empty: the server is away
                lines = await asyncio.gather(*(loop.explain(plan.decision_id, a.job_id) for a in plan.actions))
                print(*lines, sep="\n")
            await loop.observe(number)
            end_jobs(number)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"))
