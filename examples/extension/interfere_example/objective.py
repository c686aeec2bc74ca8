"""An objective of one's own: the longer a job has been waiting since it was submitted, the less it may be slowed."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from interfere import Device, Job, Snapshot
from interfere.config import SHIPPED_MODEL
from interfere.features.pair import FeatureEncoder
from interfere.policy.context import PlanningContext, ProfileLookup
from interfere.policy.costs.objectives import Objective
from interfere.policy.decide import decide
from interfere.predict.onnx import load_model
from interfere.records import ScopeLedger


def elapsed_s(jobs: Sequence[Job]) -> NDArray[np.float64]:
    """Seconds since submission, float64[n]."""
    return np.array([job.elapsed_s for job in jobs], dtype=np.float64)


# f_i(x) = e_i (x - 1): each second since submission makes a job's slowdown dearer.
LONGEST_WAIT = Objective(
    constant=lambda jobs: -elapsed_s(jobs),
    rate=elapsed_s,
    required_fields=("elapsed_s",),  # a snapshot without them is refused, with the path of each
)

if __name__ == "__main__":
    model = load_model(SHIPPED_MODEL, FeatureEncoder())
    waited_s = {"gemm": 86_400.0, "request-server": 60.0, "gpt-decode": 60.0}
    snapshot = Snapshot(
        pending=tuple(Job(id=name, workload=name, elapsed_s=seconds) for name, seconds in waited_s.items()),
        devices=tuple(Device(id=name, type="cpu-core") for name in ("d0", "d1")),
    )
    for objective in (None, LONGEST_WAIT):
        context = PlanningContext(
            snapshot=snapshot,
            predictor=model,
            catalogue=ProfileLookup(profiles=lambda job, device_type: model.profiles.get((job.workload, device_type))),
            custom_objective=objective,
        )
        plan = decide(context, ScopeLedger(scope=snapshot.scope)).plan
        alone = [action.job_id for action in plan.actions if action.kind == "start_alone"]
        print("default" if objective is None else "longest wait", "alone:", *alone, "status:", plan.status.value)
