"""One run of quickstart: shipped data first, then measure, train, serve, match, run the chosen pairing, and learn."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from interfere.commands.output import progress_note
from interfere.commands.quickstart.comparison import Comparison, ComparisonRow, MeasuringTime, compare
from interfere.commands.quickstart.estimates import (
    Knowledge,
    Slowdowns,
    learn_between_runs,
    measured_slowdowns,
)
from interfere.commands.quickstart.pairings import (
    Direction,
    Pairing,
    all_pairs,
    choose_held_out,
    choose_random_pairing,
    directions,
    distinct_pairs,
    greedy_pairing,
)
from interfere.commands.quickstart.plan import RunFolder, RunPlan, RunSettings
from interfere.commands.quickstart.served_model import Decision, match_jobs, predict_slowdowns, report_measured
from interfere.commands.quickstart.stages import SHIPPED, Progress, Stages
from interfere.errors import UnfitError
from interfere.records import PairMeasurement, PairStatus

# Seconds on a virtual machine with two cores and nothing else running.
SHIPPED_S, TRAIN_S, SERVE_S, START_S = 10.0, 75.0, 8.0, 20.0
PAIR_S, PAIR_AGAIN_S = 4.6, 6.8  # of one pair
WARN_STEAL = 0.03  # share of the core that other programs took; less is usual
WriteFindings = Callable[["Findings"], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The results of one run so far."""

    reason_not_measured: str  # empty where the jobs were measured on this machine
    workloads: tuple[str, ...]
    held_out: tuple[tuple[str, str], ...] = ()  # pairs that no model saw
    decision: Decision
    rows: tuple[ComparisonRow, ...]  # the chosen pairing first
    comparisons: tuple[Comparison, ...]
    knowledge: Knowledge
    training: Mapping[str, Any] = field(default_factory=dict)  # document of `interfere train`; empty: shipped model
    learning: Mapping[str, Any] = field(default_factory=dict)  # what the server learnt; empty: nothing was run again
    measured: tuple[PairMeasurement, ...] = ()  # here, in both measurements
    is_finished: bool = False
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return the report: what --json prints and report.json holds."""
        return {
            "measured_here": bool(self.measured),
            "why_not_measured": self.reason_not_measured,
            "device": "one CPU core, time-sliced",
            "workloads": list(self.workloads),
            "held_out_pairs": [list(pair) for pair in self.held_out],
            "decision": dict(self.decision.facts),
            "explained": dict(self.decision.explained),
            "pairings": [asdict(row) for row in self.rows],
            "comparisons": [
                asdict(comparison) | {"verdict": comparison.verdict, "text": comparison.text()}
                for comparison in self.comparisons
            ],
            "online": dict(self.learning),
            "training": dict(self.training),
            "disturbed": [
                {"pair": pair, "share_of_core": share} for pair, share in disturbed_pairs(self.measured).items()
            ],
            "failed": [{"pair": pair, "reason": reason} for pair, reason in failed_pairs(self.measured).items()],
            "seconds": self.seconds,
        }


def run_quickstart(stages: Stages, folder: RunFolder, settings: RunSettings, write_page: WriteFindings) -> Findings:
    """Run all stages that have not ended yet. Raises UnfitError where a stage cannot run or fails."""
    names, begin_s, reason = settings.workloads, time.monotonic(), stages.reason_not_to_measure()
    held_out, random_pairing = choose_held_out(names, settings.seed), choose_random_pairing(names, settings.seed)
    plan = RunPlan(_expected_seconds(len(names), 0 if reason else settings.longer))
    if reason:
        progress_note(f"This machine cannot measure: {reason}. Every figure below is from the shipped table.")
    else:
        progress_note(
            f"One CPU core, shared in time slices, stands in for a GPU. {plan.text}; interrupted, it goes on."
        )

    # 1. Serve, match and explain with the model and the table that ship with the program.
    with plan.stage("from shipped data: a model is served, places the jobs and explains one of them"):
        shipped = _shipped_findings(stages, folder, names, random_pairing, reason)
        progress_note(f"      page: {write_page(shipped)}; a page of this machine replaces it when the run ends")

    # 2. Measure all jobs alone and in pairs.
    first: Sequence[PairMeasurement] = ()
    if not reason:
        n_pairs = len(names) * (len(names) + 1) // 2
        with plan.stage(f"measuring {len(names)} jobs alone and in all {n_pairs} pairs") as progress:
            first = stages.measure_all(settings.workload_set, progress)

    # 3. Train on all pairs but the held-out ones.
    with plan.stage(f"training six predictors; {len(held_out)} of the pairs are hidden from each") as progress:
        measured = any(row.status is PairStatus.OK for row in first)
        training = folder.once("train", lambda: _train(stages, held_out, progress, measured=measured))

    # 4. Serve the best and match.
    model = str(training["folder"])
    with plan.stage("serving the best, asking it which jobs share a core"):
        decision = _decide(stages, folder, "decision", model, names)
    chosen, greedy = decision.pairing, greedy_pairing(names, _values(decision.predicted))

    # 5. Run the chosen, the greedy and a random pairing for real; 6. report to the server what the chosen pairs did.
    again: Sequence[PairMeasurement] = ()
    learning: Mapping[str, Any] = {}
    if not reason:
        pairs = distinct_pairs(chosen, greedy, random_pairing)
        with plan.stage(f"running the chosen, a greedy and a random pairing: {len(pairs)} pairs, afresh") as progress:
            again = stages.measure_pairs(pairs, progress)
        with plan.stage("reporting what was measured; the server learns"):
            rows = _rows_of(chosen, again)
            learning = folder.once("learning", lambda: _learn(stages, model, names, decision.predicted, rows))

    # 7. Compare.
    knowledge = _knowledge(names, decision.predicted, first or (_shipped_rows() if reason else ()), again)
    table, comparisons = compare(
        names,
        chosen,
        greedy,
        random_pairing,
        knowledge,
        MeasuringTime(seconds=plan.usual_s("measure", "again"), longer=settings.longer),
    )
    findings = Findings(
        reason_not_measured=reason,
        workloads=names,
        held_out=tuple(held_out),
        decision=decision,
        rows=table,
        comparisons=comparisons,
        knowledge=knowledge,
        training=training,
        learning=learning,
        measured=(*first, *again),
        is_finished=True,
        seconds=time.monotonic() - begin_s,
    )
    write_page(findings)
    return findings


def disturbed_pairs(rows: Sequence[PairMeasurement]) -> dict[str, float]:
    """Return the share of the core that other programs took, by pair, largest first; only shares worth a warning."""
    shares: dict[str, float] = {}
    for row in rows:
        if row.steal_frac > WARN_STEAL:
            shares[pair_name(row)] = max(row.steal_frac, shares.get(pair_name(row), 0.0))
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def failed_pairs(rows: Sequence[PairMeasurement]) -> dict[str, str]:
    """Return why pairs have no slowdown, by pair."""
    return {pair_name(row): row.reason for row in rows if row.status is not PairStatus.OK}


def pair_name(row: PairMeasurement) -> str:
    """Return the pair of a measurement, the same for both directions."""
    return " beside ".join(sorted((row.victim, row.neighbour)))


def _expected_seconds(n_jobs: int, longer: int) -> dict[str, float]:
    """Return the stages with their usual seconds; without measuring where `longer` is 0."""
    n_pairs, most_again = n_jobs * (n_jobs + 1) // 2, 3 * n_jobs // 2
    measure_s, again_s = START_S + longer * PAIR_S * n_pairs, START_S + longer * PAIR_AGAIN_S * most_again
    expected_s = {"shipped": SHIPPED_S, "measure": measure_s, "train": TRAIN_S}
    expected_s |= {"decide": SERVE_S, "again": again_s, "learn": SERVE_S}
    return {name: s for name, s in expected_s.items() if longer or name not in ("measure", "again", "learn")}


def _shipped_findings(
    stages: Stages, folder: RunFolder, names: tuple[str, ...], random_pairing: Pairing, reason: str
) -> Findings:
    decision = _decide(stages, folder, "shipped", SHIPPED, names)
    knowledge = _knowledge(names, decision.predicted, _shipped_rows(), ())
    greedy = greedy_pairing(names, _values(decision.predicted))
    rows, comparisons = compare(names, decision.pairing, greedy, random_pairing, knowledge, MeasuringTime())
    return Findings(
        reason_not_measured=reason,
        workloads=names,
        decision=decision,
        rows=rows,
        comparisons=comparisons,
        knowledge=knowledge,
    )


def _decide(stages: Stages, folder: RunFolder, name: str, model: str, names: Sequence[str]) -> Decision:
    """Return a model's predictions and its decision, requested once a run."""

    def ask() -> dict[str, Any]:
        with stages.serve(model) as client:
            predicted = predict_slowdowns(client, names)
            return match_jobs(client, names, predicted).document()

    return Decision.from_document(folder.once(name, ask))


def _train(
    stages: Stages, held_out: Sequence[tuple[str, str]], progress: Progress, *, measured: bool
) -> dict[str, Any]:
    """Train with the measurements made here, or without them where they are too noisy to learn from."""
    if measured:
        try:
            return {**stages.train(held_out, progress, with_measured=True), "with_measured": True}
        except UnfitError as error:
            progress_note(
                f"      what was measured here teaches no predictor, so the shipped table does: {error.value}"
            )
    return {**stages.train(held_out, progress, with_measured=False), "with_measured": False}


def _learn(
    stages: Stages, model: str, names: Sequence[str], predicted: Slowdowns, rows: Sequence[PairMeasurement]
) -> dict[str, Any]:
    with stages.serve(model) as client:
        return report_measured(client, names, predicted, rows)


def _rows_of(pairing: Pairing, rows: Sequence[PairMeasurement]) -> list[PairMeasurement]:
    """Return the measurements of both directions of every pair of a pairing."""
    wanted = set(directions(pairing))
    return [row for row in rows if (row.victim, row.neighbour) in wanted and row.status is PairStatus.OK]


def _shipped_rows() -> Sequence[PairMeasurement]:
    from interfere.data.shipped_tables import shipped_table
    from interfere.data.tables import read_table

    return read_table(shipped_table(SHIPPED)).pairs


def _knowledge(
    names: Sequence[str], predicted: Slowdowns, first: Sequence[PairMeasurement], again: Sequence[PairMeasurement]
) -> Knowledge:
    wanted = set(directions(all_pairs(names)))
    tables = [
        {pair: slowdown for pair, slowdown in measured_slowdowns(rows).items() if pair in wanted}
        for rows in (first, again)
    ]
    return Knowledge(
        predicted=predicted, first=tables[0], again=tables[1], between_runs=learn_between_runs(tables[0], tables[1])
    )


def _values(slowdowns: Slowdowns) -> dict[Direction, float]:
    return {pair: slowdown.value for pair, slowdown in slowdowns.items()}
