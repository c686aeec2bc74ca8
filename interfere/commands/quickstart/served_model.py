"""What a run asks the served model: which slowdowns it predicts, which jobs share a core, what it learns."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from interfere.client import PolicyClient
from interfere.commands.quickstart.estimates import Slowdown, Slowdowns, predicted_slowdown
from interfere.commands.quickstart.pairings import Direction, Pairing
from interfere.records import Device, Job, PairMeasurement, Progress, Snapshot
from interfere.sharing_modes import DEFAULT_MODE
from interfere.wire.documents import decision_document

DEVICE_TYPE, MODE = "cpu-core", DEFAULT_MODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The predictions and the decision of a served model that the later stages need."""

    model_version: str
    pairing: Pairing
    facts: Mapping[str, Any]  # of the plan
    explained: Mapping[str, Any]  # one job's action, and its alternatives
    predicted: Slowdowns

    def document(self) -> dict[str, Any]:
        """Return the decision as JSON."""
        return asdict(self) | {"predicted": [[*pair, *slowdown] for pair, slowdown in self.predicted.items()]}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Decision":
        """Read what `document` wrote."""
        predicted = {(a, b): Slowdown(value, error) for a, b, value, error in document["predicted"]}
        pairing = tuple((a, b) for a, b in document["pairing"])
        return cls(**{**document, "pairing": pairing, "predicted": predicted})


def predict_slowdowns(client: PolicyClient, names: Sequence[str]) -> dict[Direction, Slowdown]:
    """Ask the server for the slowdown of every job beside every other."""
    answer = client.predict(names, device_type=DEVICE_TYPE, mode=MODE)
    made = answer.prediction
    numbers = zip(answer.victim.tolist(), answer.neighbour.tolist(), made.median, made.lower, made.upper, strict=True)
    return {
        (names[i], names[j]): predicted_slowdown(float(median), float(lower), float(upper))
        for i, j, median, lower, upper in numbers
    }


def match_jobs(client: PolicyClient, names: Sequence[str], predicted: Slowdowns) -> Decision:
    """Ask the server to place all jobs on half as many cores, and to explain what the first job got."""
    devices = tuple(Device(id=f"core-{k + 1}", type=DEVICE_TYPE, mode=MODE) for k in range(len(names) // 2))
    plan = client.match(Snapshot(pending=tuple(Job(id=name, workload=name) for name in names), devices=devices))
    facts = {
        "decision_id": plan.decision_id,
        "model_version": plan.model_version,
        "status": str(plan.status),
        "cost": plan.cost,
        "greedy_cost": plan.greedy_cost,
        "lower_bound": plan.lower_bound,
    }
    return Decision(
        model_version=plan.model_version,
        pairing=tuple((pair.job_id, pair.partner_id) for pair in plan.pairs),
        facts=facts,
        explained=decision_document(client.explain(plan.decision_id, names[0])),
        predicted=predicted,
    )


def report_measured(
    client: PolicyClient, names: Sequence[str], predicted: Slowdowns, rows: Sequence[PairMeasurement]
) -> dict[str, Any]:
    """Report what pairs really did, as a scheduler would, and predict again."""
    reports = [
        Progress(
            observation_id=f"quickstart-{row.victim}-{row.neighbour}",
            job_id=row.victim,
            workload=row.victim,
            company=(row.neighbour,),
            device_type=DEVICE_TYPE,
            mode=MODE,
            slowdown=row.slowdown,
            start_s=float(k),
            end_s=k + 1.0,
        )
        for k, row in enumerate(rows)
    ]
    if not reports:
        return {"observations": 0, "applied": 0, "error_before": None, "error_after": None}
    answers = client.observe(reports)
    learned = predict_slowdowns(client, names)
    return {
        "observations": len(answers),
        "applied": sum(answer.result.value in ("applied", "duplicate") for answer in answers),
        "error_before": _prediction_error(predicted, rows),
        "error_after": _prediction_error(learned, rows),
    }


def _prediction_error(predicted: Slowdowns, rows: Sequence[PairMeasurement]) -> float:
    """Return the mean of |predicted - measured| / measured."""
    errors = [abs(predicted[row.victim, row.neighbour].value - row.slowdown) / row.slowdown for row in rows]
    return math.fsum(errors) / len(errors)
