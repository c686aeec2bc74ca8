"""A what-if answer for programs: one JSON document."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interfere.training.whatif import wording
from interfere.training.whatif.answer import WhatIfAnswer
from interfere.training.whatif.effects import Effect


def document(answer: WhatIfAnswer, page: Path | None = None) -> dict[str, Any]:
    """Everything that the page shows. A cap of null is none; a target load of null is the trace's own."""
    text, tone = wording.verdict(answer)
    question = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(answer.question).items()}
    return {
        "question": question | {"queues": list(answer.question.queue_names)},
        "trace": answer.trace,
        "load": answer.load,
        "coverage": asdict(answer.coverage)
        | {
            "job_share": answer.coverage.job_share,
            "gpu_h_share": answer.coverage.gpu_h_share,
            "left_out": dict(answer.left_out),
            "is_predicted": answer.is_predicted,
            "text": wording.coverage_text(answer),
        },
        "verdict": text,
        "tone": tone,
        "placement": wording.placement_text(answer.comparisons),
        "scenarios": wording.scenario_text(answer),
        "populations": wording.population_text(answer),
        "effects": [_effect(effect) for effect in answer.effects],
        "comparisons": [asdict(each) | {"difference": each.difference} for each in answer.comparisons],
        "unknown": [asdict(each) for each in answer.unknown],
        "missing": asdict(answer.missing),
        "notes": wording.notes(answer),
        "replays": answer.replays,
        "planned": answer.planned,
        "interrupted": answer.interrupted,
        "page": str(page) if page is not None else None,
    }


def _effect(effect: Effect) -> dict[str, Any]:
    cap = effect.max_slowdown
    return asdict(effect) | {"max_slowdown": cap if math.isfinite(cap) else None}
