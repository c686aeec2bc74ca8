"""Reads what a what-if question is about: the trace with its names mapped, the truth, and what it covers.

Law: where the truth knows next to nothing of the trace there is no answer, but what to do about that.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from interfere.config import load_settings
from interfere.data.importers.site_traces.workload_map import read_workload_map
from interfere.data.tables import read_table
from interfere.data.traces import JobTrace, read_trace
from interfere.errors import InvalidInputError
from interfere.predict.model_profiles import shipped_profiles
from interfere.predict.onnx import load_model
from interfere.predict.transfer.first_predictions import log_predictions
from interfere.sharing_modes import OptionalSharingMode, SharingMode
from interfere.sim.beliefs import true_beliefs
from interfere.sim.schedulers.names import GREEDY, MATCHING
from interfere.sim.sweeps.tasks import Scenario
from interfere.sim.trace_worlds import TraceWorlds, worlds_of
from interfere.sim.truth import UNKNOWN_ALONE, UNKNOWN_MEDIAN, UNKNOWN_WORST, TruthTable, assume_unknown, truth_of
from interfere.sim.world import HOUR_S, World
from interfere.training.replay.clusters import given_clusters
from interfere.training.replay.coverage import Coverage, coverage_of, require_coverage
from interfere.training.replay.tuned_constants import tuned_here
from interfere.training.whatif.question import CHECKPOINT_S, WhatIf

MODEL_MODES = (SharingMode.MPS, SharingMode.TIMESLICE)  # of a model that was fitted on several, the first that it knows


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownWorkload:
    """A workload of the trace of which the truth has no pair."""

    workload: str  # empty: jobs that name none
    jobs: int
    gpu_h: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfInputs:
    """The worlds, the scenarios (the one that was asked for first), and what is to be known about them."""

    trace: str
    worlds: tuple[World, ...]
    scenarios: tuple[Scenario, ...]
    measured: TruthTable  # without assumptions
    is_predicted: bool  # are slowdowns predictions of a model?
    coverage: Coverage
    unknown: tuple[UnknownWorkload, ...]  # most GPU hours first
    tried: frozenset[frozenset[str]]  # unordered pairs with a row of measurements; none of a model's predictions
    left_out: tuple[tuple[str, int], ...]  # jobs that cannot be replayed: reason, number
    notes: tuple[str, ...]


def read_inputs(question: WhatIf) -> WhatIfInputs:
    """Raises TableError and ModelError for files that break their format, InvalidInputError where the truth covers next
    to nothing of the trace or several device types match."""
    trace, map_note = _mapped(read_trace(question.trace), question.name_map)
    truth, tried = _truth(question)
    trace_worlds = _worlds(question, trace, truth)
    worlds = trace_worlds.worlds
    coverage = coverage_of(truth, worlds)
    _require_coverage(coverage, truth, worlds)
    return WhatIfInputs(
        trace=trace.name,
        worlds=worlds,
        scenarios=tuple(_scenarios(question, truth, worlds)),
        measured=truth,
        is_predicted=question.model is not None,
        coverage=coverage,
        unknown=tuple(_unknown(truth, worlds)),
        tried=tried,
        left_out=trace_worlds.left_out,
        notes=tuple(filter(None, (map_note, truth.note(), trace_worlds.note(), _tuned_note(question, worlds)))),
    )


def _tuned_note(question: WhatIf, worlds: Sequence[World]) -> str:
    """Which constants were chosen on this very trace."""
    shared = [f"{queue}+{sharing}" for queue in question.queue_names for sharing in (GREEDY, MATCHING)]
    tuned = tuned_here(worlds, shared)
    return f"not a held-out trace: chosen on it were {' and '.join(dict.fromkeys(tuned.values()))}" if tuned else ""


def _mapped(trace: JobTrace, name_map: Path | None) -> tuple[JobTrace, str]:
    """The trace with its workloads renamed where a pattern matches, and a note about that."""
    if name_map is None:
        return trace, ""
    patterns = read_workload_map(name_map)
    renamed = [replace(job, workload=patterns.workload(job.workload) or job.workload) for job in trace.jobs]
    matched = sum(bool(patterns.workload(job.workload)) for job in trace.jobs)
    return replace(trace, jobs=tuple(renamed)), f"names: {matched} of {len(renamed)} jobs mapped by {name_map.name}"


def _truth(question: WhatIf) -> tuple[TruthTable, frozenset[frozenset[str]]]:
    """The truth, and the unordered pairs of it that have a row."""
    if question.table is None:
        folder = load_settings(model=question.model).served_folder
        return model_truth(folder, question.device_type, question.mode), frozenset()
    table = read_table(question.table)
    truth = truth_of(table, device_type=question.device_type, mode=question.mode)
    rows = [row for row in table.pairs if (row.device_type, row.mode) == (truth.device_type, truth.mode)]
    return truth, frozenset(frozenset((row.victim, row.neighbour)) for row in rows)


def model_truth(folder: Path, device_type: str, mode: OptionalSharingMode) -> TruthTable:
    """What a model predicts of the workloads whose profiles its folder carries, as a truth.

    Raises InvalidInputError where no or several device types match.
    """
    from interfere.features.pair import FeatureEncoder

    model = load_model(folder, FeatureEncoder())
    profiles = shipped_profiles(folder)
    types = sorted({profile.device_type for profile in profiles})
    chosen = device_type or (types[0] if len(types) == 1 else "")
    if chosen not in types:
        raise InvalidInputError(
            "which device type of the model?", value=device_type or "none", remedy=f"--device-type {' or '.join(types)}"
        )
    modes = (mode,) if mode else MODEL_MODES
    known_mode = next((name for name in modes if not model.knows(chosen, name)), None)
    if known_mode is None:
        raise InvalidInputError(
            "the model knows no such sharing",
            value=f"{chosen}, {', '.join(modes)}",
            remedy=model.knows(chosen, modes[0]),
        )
    own = {profile.workload: profile for profile in profiles if profile.device_type == chosen}
    log_slowdown = log_predictions(model, list(own.values()), chosen, known_mode)
    table = np.maximum(np.exp(log_slowdown), 1.0)
    return TruthTable(device_type=chosen, mode=known_mode, workloads=tuple(own), table=table, filled=table.size)


def _worlds(question: WhatIf, trace: JobTrace, truth: TruthTable) -> TraceWorlds:
    return worlds_of(
        trace,
        device_type=truth.device_type,
        mode=truth.mode,
        clusters=given_clusters(trace, question.gpus, question.per_node),
        checkpoint_s=CHECKPOINT_S,
    )


def _require_coverage(coverage: Coverage, truth: TruthTable, worlds: Sequence[World]) -> None:
    """Raises InvalidInputError where the truth covers next to nothing, with names that may mean the same."""
    try:
        require_coverage(coverage, truth, worlds)
    except InvalidInputError as error:
        names = Counter(job.workload for world in worlds for job in world.jobs if job.workload)
        rows = suggested_map([name for name, _ in names.most_common()], truth.workloads)
        suggestion = f"; names that may mean the same, for --map: {'; '.join(rows[:5])}" if rows else ""
        unnamed = "" if names else "; its jobs name no workload: import it again with --workloads FILE"
        raise InvalidInputError(
            error.what,
            value=error.value,
            remedy=f"map the trace's names to the table's with --map FILE (CSV: pattern,workload), or measure pairs of "
            f"its workloads (`interfere onboard`){suggestion}{unnamed}",
        ) from None


def suggested_map(names: Iterable[str], workloads: Sequence[str]) -> list[str]:
    """Rows `pattern,workload` for names that resemble a workload's name, in the order of the names."""
    plain = {_plain(workload): workload for workload in workloads}
    rows = []
    for name in names:
        word = _plain(name)
        inside = [other for other in plain if len(word) > 3 and (word in other or (len(other) > 3 and other in word))]
        close = sorted(inside, key=len)[:1] or get_close_matches(word, plain, n=1, cutoff=0.75)
        if close:
            rows.append(f"^{name}$,{plain[close[0]]}")
    return rows


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def _scenarios(question: WhatIf, truth: TruthTable, worlds: Sequence[World]) -> list[Scenario]:
    """The one that was asked for, then the others about workloads without truth."""
    workloads = [job.workload for world in worlds for job in world.jobs]
    has_unknown = bool(set(filter(None, workloads)) - set(truth.workloads)) and question.model is None
    names = [question.unknown]
    if has_unknown:
        names += [name for name in (UNKNOWN_ALONE, UNKNOWN_MEDIAN, UNKNOWN_WORST) if name != question.unknown]
    scenarios = []
    for name in names:
        assumed = truth if name == UNKNOWN_ALONE else assume_unknown(truth, workloads, name)
        scenarios.append(Scenario(name=name, truth=assumed, beliefs=true_beliefs(assumed)))
    return scenarios


def _unknown(truth: TruthTable, worlds: Sequence[World]) -> list[UnknownWorkload]:
    jobs, hours = Counter[str](), Counter[str]()
    for world in worlds:
        for job in world.jobs:
            if job.workload not in truth.index or not np.isfinite(truth.table[truth.index[job.workload]]).any():
                jobs[job.workload] += 1
                hours[job.workload] += job.gpus * job.duration_s / HOUR_S  # type: ignore[assignment]
    found = [UnknownWorkload(workload=name, jobs=count, gpu_h=hours[name]) for name, count in jobs.items()]
    return sorted(found, key=lambda each: (-each.gpu_h, each.workload))


def gpu_hours(worlds: Sequence[World]) -> dict[str, float]:
    """GPU hours of each named workload, most first."""
    hours: dict[str, float] = {}
    for world in worlds:
        for job in world.jobs:
            if job.workload and math.isfinite(job.duration_s):
                hours[job.workload] = hours.get(job.workload, 0.0) + job.gpus * job.duration_s / HOUR_S
    return dict(sorted(hours.items(), key=lambda item: (-item[1], item[0])))
