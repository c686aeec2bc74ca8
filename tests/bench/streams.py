"""Streams of jobs decided event by event by a real server over gRPC, beside heuristics with the same predictions.

Measured pairs (Gavel's V100, P100 and K80) happen; the shipped GPU model predicts them. At every arrival and end the
whole cluster is sent, and the starts of the answer are made at once. The heuristics ask the server for the slowdowns
too; with `--exact` they know those that will happen, and which pairs were never measured.

`python -m tests.bench.streams gangs|types|elastic [--seeds N] [--policies NAME,...]` prints one row a policy.
"""

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from interfere.client import PolicyClient
from interfere.config import SHIPPED_GPU_MODEL, Settings
from interfere.policy.rules.runtime import P90_Z
from interfere.records import ActionKind, Job, JobSize, Limits, ObjectiveKind, Snapshot
from interfere.serving.server import start_server
from tests.bench.played_streams import (
    CHECKPOINT_S,
    Outcome,
    Policy,
    Starts,
    State,
    predicted_world,
    run,
    streams,
    told_factors,
)
from tests.bench.stream_heuristics import ELASTIC_RIVALS, RIVALS


@dataclass(kw_only=True)
class Served:
    """The server's decisions over gRPC."""

    client: PolicyClient
    scope: str
    objective: ObjectiveKind | None = None
    limits: Limits = field(default_factory=Limits)
    told: bool = True
    told_spread: float = 0.0  # of the logarithm of the remaining times; 0: none is told
    elastic: bool = False  # sizes are told, and running jobs may be stopped for another

    def __call__(self, state: State) -> Starts:
        stream = state.stream

        def job(k: int) -> Job:
            since_s = state.running[k].since_s if k in state.running else math.nan
            return Job(
                id=f"j{k}",
                workload=stream.workload[k],
                gpus=len(state.running[k].devices) if k in state.running else int(stream.gpus[k]),
                sizes=tuple(JobSize(gpus=n, speed=v) for n, v in stream.speed[k].items()) if self.elastic else (),
                preemptible=self.elastic and bool(stream.speed[k]),
                checkpoint_s=CHECKPOINT_S if self.elastic else math.nan,
                remaining_s=state.told_s(k) if self.told else math.nan,
                remaining_p90_s=state.told_s(k) * math.exp(P90_Z * self.told_spread) if self.told_spread else math.nan,
                attained_s=max(0.0, float(stream.length_s[k] - state.left_s[k])),
                elapsed_s=max(0.0, state.now_s - float(stream.arrival_s[k])),
                since_s=since_s,
            )

        devices = tuple(
            replace(device, residents=tuple(map(job, jobs)))
            for device, jobs in zip(stream.devices, state.on_device, strict=True)
        )
        more = {} if self.objective is None else {"objective": self.objective}
        snapshot = Snapshot(
            pending=tuple(map(job, state.pending)),
            devices=devices,
            scope=self.scope,
            limits=self.limits,
            now_s=state.now_s,
            **more,
        )
        place = {device.id: k for k, device in enumerate(stream.devices)}
        plan = self.client.match(snapshot)
        stops: Starts = [(int(action.job_id[1:]), ()) for action in plan.actions if action.kind is ActionKind.PREEMPT]
        return stops + [
            (int(action.job_id[1:]), tuple(place[name] for name in action.places))
            for action in plan.actions
            if action.places and action.kind.value.startswith("start")
        ]


SERVED = {
    "auto": (ObjectiveKind.AUTO, True),
    "completion_time": (ObjectiveKind.COMPLETION_TIME, True),
    "makespan": (ObjectiveKind.MAKESPAN, True),
    "fairness": (ObjectiveKind.FINISH_TIME_FAIRNESS, True),
    "weighted_excess": (ObjectiveKind.WEIGHTED_EXCESS, True),
    "auto-untold": (ObjectiveKind.AUTO, False),
    "auto-elastic": (ObjectiveKind.AUTO, True),
    "completion_time-elastic": (ObjectiveKind.COMPLETION_TIME, True),
}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=("gangs", "types", "elastic"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--load", type=float, default=1.2)
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--policies", default="")
    parser.add_argument("--noise", type=float, default=0.0, help="standard error of log remaining time")
    parser.add_argument("--tell-noise", action="store_true", help="the server is told the 90 % quantiles too")
    parser.add_argument("--off", type=float, default=1.0, help="factor by which a tenth of the remaining times is off")
    parser.add_argument("--exact", action="store_true", help="the heuristics know the slowdowns that will happen")
    options = parser.parse_args(arguments)
    drawn = streams(options.case, range(options.first, options.first + options.seeds), options.load, options.jobs)
    names = options.policies.split(",") if options.policies else [*RIVALS, "auto"]
    if options.case == "elastic" and not options.policies:
        names += [*ELASTIC_RIVALS, "auto-elastic"]
    rivals = RIVALS | ELASTIC_RIVALS
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(model=SHIPPED_GPU_MODEL, work=Path(folder), port=0, decision_workers=0)
        server = start_server(settings)
        try:
            with PolicyClient(server.address, timeout_s=120.0) as client:
                if not options.exact:
                    drawn = [replace(each, believed=predicted_world(each.world, client)) for each in drawn]
                for name in names:
                    outcomes = []
                    for k, stream in enumerate(drawn):
                        noise = told_factors(options.first + k, len(stream.length_s), options.noise, options.off)
                        policy: Policy
                        if name in rivals:
                            policy = rivals[name]
                        else:
                            objective, told = SERVED[name]
                            elastic = name.endswith("-elastic")
                            policy = Served(
                                client=client,
                                scope=f"{name}-{k}",
                                objective=objective,
                                told=told,
                                told_spread=options.noise if options.tell_noise and told else 0.0,
                                elastic=elastic,
                                limits=Limits.of(allowed=frozenset(ActionKind)) if elastic else Limits(),
                            )
                        outcomes.append(run(stream, policy, noise))
                    print_row(name, outcomes)
        finally:
            server.stop()


def print_row(name: str, outcomes: Sequence[Outcome]) -> None:
    """Means over the seeds, then the mean completion of each seed."""
    mean = [float(each.completion_s.mean()) for each in outcomes]
    p95 = np.mean([np.quantile(each.completion_s, 0.95) for each in outcomes])
    longest = [float(each.wait_s.max()) for each in outcomes]
    ratio = np.mean([each.ratio.max() for each in outcomes])
    makespan = np.mean([each.makespan_s for each in outcomes])
    decision_ms = 1e3 * np.mean([each.decision_s for each in outcomes])
    print(
        f"{name:22s} mean {np.mean(mean):7.0f}  p95 {p95:7.0f}  longest wait {np.mean(longest):7.0f}  "
        f"stops {np.mean([each.stops / len(each.wait_s) for each in outcomes]):.2f} a job  "
        f"max rho {ratio:6.1f}  makespan {makespan:7.0f}  {decision_ms:6.1f} ms  "
        f"per seed {' '.join(f'{value:.0f}' for value in mean)} | "
        f"waits {' '.join(f'{value:.0f}' for value in longest)}",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
