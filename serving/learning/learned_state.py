"""What was learned from the log up to one of its entries, and how it is told."""

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass

from interfere.predict.residual import OnlineModel
from interfere.records import Correction, OnlineState, ReporterState
from interfere.serving.profiles import ProfileCatalogue

MAX_CORRECTIONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedState:
    """The state learned from the log up to one of its entries. It is immutable, so that any thread may read it."""

    model: OnlineModel
    last_sequence: int  # of the log's newest entry; 0 without any
    counts: Mapping[str, int]  # entries by kind
    used_bytes: Mapping[tuple[str, str], float]  # largest measured memory by (workload, device type)
    profiles: ProfileCatalogue  # that the model learned with
    relearning: bool = False  # the log is learned again beside: a rollback or a profile is not in the model yet

    def summary(self) -> OnlineState:
        """Return counts of stored observations, and of what the model learned from them."""
        return online_summary(self.model, self.counts, relearning=self.relearning)


def online_summary(model: OnlineModel, counts: Mapping[str, int], *, relearning: bool = False) -> OnlineState:
    """Return counts of stored observations by kind, and of what the model learned from them."""
    reporters = tuple(
        ReporterState(
            reporter=name,
            windows=round(record.window_count),
            trust=record.trust,
            weight=model.state.reporter_weights.get(name, 1.0),
        )
        for name, record in sorted(model.state.reporters.items())
        if name
    )
    return OnlineState(
        **(model.summary() | {"observations": sum(counts.values())}),
        frozen=model.drifting_workloads(),
        outcomes=counts.get("outcome", 0),
        memory_usages=counts.get("memory_usage", 0),
        reporters=reporters,
        changed_domains=tuple(sorted("/".join(key) for key, domain in model.state.domains.items() if domain.epoch)),
        relearning=relearning,
    )


def largest_corrections(model: OnlineModel) -> tuple[Correction, ...]:
    """The pairs whose own windows differ most from the model's prediction, each with what those windows tell."""
    pairs = (
        (victim, neighbour, evidence)
        for victim, by_neighbour in model.state.pairs.items()
        for neighbour, evidence in by_neighbour.items()
    )
    largest = heapq.nlargest(MAX_CORRECTIONS, pairs, key=lambda item: abs(item[2].mean))
    return tuple(
        Correction(
            victim=victim,
            neighbour=neighbour,
            device_type=device_type,
            mode=mode,
            log_factor=evidence.mean,
            sd=math.sqrt(evidence.variance),
        )
        for (victim, device_type, mode), neighbour, evidence in largest
    )
