"""The question `replay`: which scheduler is best on a trace, and what sharing changes under each."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from interfere.errors import InvalidInputError
from interfere.file_writing import write_atomically
from interfere.records.cluster import DEFAULT_SEATS
from interfere.reports.document import Document
from interfere.reports.html_page import write_html_page
from interfere.sim.edge_world import CHECKPOINT_S
from interfere.sim.schedulers.records import DEADLINE_DEFAULT, DEFAULT, SchedulerRecord
from interfere.sim.trace_worlds import days_spanned
from interfere.sim.truth import Composition
from interfere.sim.world import World
from interfere.study.comparison import Comparison, compare, on_whole_traces, trace_tasks, with_references
from interfere.study.coverage import Coverage
from interfere.study.questions import StudyInputs, StudyModels, read_inputs
from interfere.study.replay_report import replay_document, verdicts
from interfere.study.replays import ReplayInputs, ReplayResult, ReplayTask
from interfere.study.study import HIDDEN_SHARE, NODE_GPUS, TIRESIAS_CHECKPOINT_S, Study, require_acting

GUESTS_END_FIRST = "guests end first, where no job is preempted: a job joins one that is expected to end no earlier"
INTERRUPTED = "interrupted: of the traces that every policy was replayed on by then"
COMPOSED_GROUPS = (
    "seats: a group that the truth did not measure slows each job down by the sum of its pairs, 1 + Σ (s - 1), unless "
    "the title of a table says by their product; the scheduler composes groups as the server does"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayAnswer:
    """The comparison of schedulers in a study, with the facts that a reader needs to judge the comparison."""

    study: Study  # resolved, with the schedulers that were replayed
    coverage: Coverage
    cap: float  # slowdown past which pairs are counted
    comparison: Comparison  # groups that nobody measured are the sum of their pairs
    product: Comparison | None  # the same where they are the product; None where two jobs at most share a device
    notes: tuple[str, ...]  # truth, trace, predictions: what was clipped, filled, left out
    interrupted: bool

    def document(self) -> Document:
        """Return the report for people."""
        return replay_document(self)

    def facts(self, files: Sequence[Path]) -> dict[str, Any]:
        """Return all results except those of single jobs, for programs. `files`: the files of the report."""
        comparison = self.comparison
        content: dict[str, Any] = {
            "question": self.study,
            "coverage": self.coverage,
            "notes": self.notes,
            "verdicts": verdicts(self),
            "cap": self.cap,
            "stable": comparison.stable,
            "overloaded": comparison.overloaded,
            "runs": [_run_facts(run) for run in comparison.runs],
            "files": files,
        }
        if self.product is not None:
            content["groups_by_product"] = {"stable": self.product.stable, "overloaded": self.product.overloaded}
        if self.study.deadlines is not None:
            recorded = [run for run in comparison.runs if not run.task.draw]
            content["deadlines"] = comparison.deadlines
            content["worlds"] = list(dict.fromkeys(run.world for run in recorded))
            content["schedulers"] = {
                scheduler.label: [run.score for run in recorded if run.task.scheduler == scheduler]
                for scheduler in self.study.schedulers
            }
        return content

    def write(self, folder: Path) -> list[Path]:
        """Write `report.html`, `runs.csv` and `jobs.parquet`, each whole or not at all.

        Raises UnfitError where the folder cannot be written.
        """
        runs = self.comparison.runs
        rows = [_run_facts(run) for run in runs]
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        saves: dict[str, Callable[[str], object]] = {
            "runs.csv": lambda path: Path(path).write_text(text.getvalue(), encoding="utf-8", newline=""),
            "jobs.parquet": lambda path: _write_jobs(path, runs),
        }
        for name, save in saves.items():
            write_atomically(folder / name, save)
        return [write_html_page(folder / "report.html", self.document()), *(folder / name for name in saves)]


def _run_facts(run: ReplayResult) -> dict[str, Any]:
    """Return the figures of one replay by name."""
    task = run.task
    head = {"policy": run.policy, "world": run.world, "draw": task.draw}
    return head | {"load": run.load, "seconds": run.seconds} | run.score.facts()


def _write_jobs(path: str, runs: Sequence[ReplayResult]) -> None:
    """Write one row per job, world and policy, of the trace as recorded. No deadline and no promise are null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = []
    for run in runs:
        if (replayed := run.replayed) is None:
            continue
        jobs = replayed.world.jobs
        columns = {
            "policy": [run.policy] * len(jobs),
            "world": [run.world] * len(jobs),
            "job_id": [job.id for job in jobs],
            **{name: [getattr(job, name) for job in jobs] for name in ("workload", "gpus", "arrival_s", "duration_s")},
            **{name: getattr(replayed, name) for name in ("started_s", "ended_s", "stops")},
            "deadline_s": pa.array([job.deadline_s if job.has_deadline else None for job in jobs], pa.float64()),
            "promised_s": pa.array(replayed.promised_s, pa.float64(), from_pandas=True),
        }
        parts.append(pa.table(columns))
    pq.write_table(pa.concat_tables(parts), path, compression="zstd")


class ReplayQuestion:
    """The question which scheduler is best on every trace, and what sharing changes under each."""

    def resolved(self, study: Study) -> Study:
        """Return the study with its defaults filled in.

        The minimum gain of a pair, the slowdown cap and the rule on which job ends first take the server's defaults.
        Replays with deadlines do not use whole nodes, so that they stay comparable with published figures.
        """
        dated = study.deadlines is not None
        checkpoint_s = CHECKPOINT_S if dated else TIRESIAS_CHECKPOINT_S
        named = study.schedulers or (DEADLINE_DEFAULT if dated else DEFAULT)
        # Schedulers that plan groups once for each number of seats.
        seated = tuple(dict.fromkeys(one.with_seats(seats) or one for one in named for seats in study.seats))
        resolved = replace(
            study,
            schedulers=seated or named,
            hide=HIDDEN_SHARE if study.hide is None else study.hide,
            caps=study.caps or (math.inf,),
            per_node=NODE_GPUS if study.per_node is None else study.per_node,
            whole_nodes=not dated if study.whole_nodes is None else study.whole_nodes,
            checkpoint_s=checkpoint_s if study.checkpoint_s is None else study.checkpoint_s,
            guest_may_stay=study.guest_may_stay is not False,
        )
        _check(study, resolved.schedulers)
        return resolved

    def inputs(self, study: Study, models: StudyModels) -> StudyInputs:
        """Return the trace, the truth, and deadlines where the study asks for deadlines."""
        return read_inputs(study, models)

    def plan(self, study: Study, inputs: StudyInputs) -> tuple[ReplayInputs, list[ReplayTask]]:
        """Return the tasks of every scheduler, trace by trace. Groups of three and more are also composed by the
        product."""
        _check_draws(study, inputs.worlds)
        schedulers = _replayed(study, inputs.coverage)
        plain = ReplayTask(
            scheduler=schedulers[0], load=study.loads[0] if study.loads else None, max_slowdown=study.caps[0]
        )
        tasks = []
        for composition in Composition:
            seated = [one for one in schedulers if composition is Composition.SUM or one.seats > DEFAULT_SEATS]
            tasks += trace_tasks(replace(plain, composition=composition), seated, inputs.worlds, draws=study.draws)
        return replace(inputs.replays, days_as_recorded=False, keep_jobs=True), tasks

    def answer(
        self,
        study: Study,
        inputs: StudyInputs,
        results: Sequence[ReplayResult],
        *,
        planned: int,  # noqa: ARG002 - this report tells of whole traces
        interrupted: bool,
    ) -> ReplayAnswer:
        """Return the comparison of all schedulers.

        Where a scheduler has more than two seats, it is compared under both compositions of groups, sum and product.
        """
        schedulers = _replayed(study, inputs.coverage)
        dated = [world.name for world in inputs.worlds if world.has_deadlines]
        planned_tasks = self.plan(study, inputs)[1] if interrupted else []
        comparisons = []
        for composition in Composition if any(one.seats > DEFAULT_SEATS for one in schedulers) else (Composition.SUM,):
            runs: Sequence[ReplayResult] = [run for run in results if _counts(run.task, composition)]
            if interrupted:
                runs = on_whole_traces(runs, [task for task in planned_tasks if _counts(task, composition)])
            if runs:
                found = compare(runs, with_deadlines=dated)
                in_order = sorted(found.lines, key=lambda line: schedulers.index(line.scheduler))
                comparisons.append(replace(found, lines=tuple(in_order)))
        if not comparisons:
            raise KeyboardInterrupt
        product = comparisons[1] if len(comparisons) > 1 else None
        dropped = comparisons[0].dropped
        notes = (
            INTERRUPTED if interrupted else "",
            inputs.coverage.note(),
            "" if study.guest_may_stay else GUESTS_END_FIRST,
            *inputs.notes,
            COMPOSED_GROUPS if product is not None else "",
            f"draws with an offered load of 1 or more count nowhere: {', '.join(dropped)}" if dropped else "",
        )
        return ReplayAnswer(
            study=replace(study, schedulers=_named(study, inputs.coverage)),
            coverage=inputs.coverage,
            cap=inputs.replays.counted_cap,
            comparison=comparisons[0],
            product=product,
            notes=tuple(filter(None, notes)),
            interrupted=interrupted,
        )


def _counts(task: ReplayTask, composition: Composition) -> bool:
    """Return whether the replay belongs to a comparison: it has pairs only, or composes groups in this way."""
    return task.composition is composition or task.scheduler.seats == DEFAULT_SEATS


def _named(study: Study, coverage: Coverage) -> tuple[SchedulerRecord, ...]:
    """Return the schedulers of the study. Where jobs on several devices would share, each is accompanied by a version
    that shares one-GPU jobs only."""
    if not coverage.has_gangs or study.most_shared_gpus is not None:
        return study.schedulers
    pairs = ((one.one_gpu_only, one) for one in study.schedulers)
    return tuple(dict.fromkeys(one for pair in pairs for one in pair if one is not None))


def _replayed(study: Study, coverage: Coverage) -> tuple[SchedulerRecord, ...]:
    """Return the named schedulers and, without deadlines, the reference schedulers that they are compared with."""
    named = _named(study, coverage)
    return with_references(named) if study.deadlines is None else tuple(dict.fromkeys(named))


def _check(study: Study, schedulers: Sequence[SchedulerRecord]) -> None:
    """Raise InvalidInputError for a field that would change nothing."""

    def any_that(member: str) -> bool:
        return any(getattr(one, member) for one in schedulers)

    dated = study.deadlines is not None
    told = "a policy that is told durations (sjf, srtf, easy, drop, slots, policy...)"
    stopping = "a policy that stops jobs (tiresias, srtf, or with rematch), or deadlines"
    grouping = "policy, or a policy with matching of an order that stops no job and drops none"
    in_pairs = study.guest_may_stay is not False or all(one.seats == DEFAULT_SEATS for one in schedulers)
    sharing = ("predict", "online", "error", "caps", "unknown", "most_shared_gpus")
    require_acting(
        study,
        [
            ("hide", study.predict == "model", "predict model"),
            ("per_node", study.gpus is not None or bool(study.gpus_by_type), "gpus"),
            *((name, dated, "deadlines") for name in ("added", "taken")),
            *((name, any_that("sharing"), "a policy that shares") for name in sharing),
            ("unknown", study.predict != "model", "predict truth or mean"),
            ("seats", any_that("plans_groups"), grouping),
            ("guest_may_stay", in_pairs, "policies that share in pairs only"),
            ("guest_may_stay", any_that("uses_guest_ends_first"), "a policy that shares and stops no job"),
            ("slice_s", any_that("rematch"), "a policy with rematch"),
            ("whole_nodes", not all(one.is_policy for one in schedulers), "a policy with an order, or slots"),
            *((name, any_that("knows_durations"), told) for name in ("duration_error", "limit_unit_s")),
            ("duration_error", not study.limit_unit_s, "run times that are told: no limit_unit_s"),
            ("checkpoint_s", any_that("stops_jobs") or dated, stopping),
            ("error", study.predict == "truth", "predict truth: an error is put on the truth only"),
            ("loads", len(study.loads) <= 1, "one load; question whatif takes several"),
            ("caps", len(study.caps) <= 1, "one cap; question whatif takes several"),
            ("pairs", False, "question whatif"),
        ],
    )
    if any(load <= 0 for load in study.loads):
        raise InvalidInputError("an offered load is positive", value=study.loads[0], remedy="for example 0.85")


def _check_draws(study: Study, worlds: Sequence[World]) -> None:
    """Raise InvalidInputError where redrawn days would equal the recorded day."""
    if study.draws and all(days_spanned(world) == 1 for world in worlds):
        raise InvalidInputError(
            "draws would change nothing: every world of the trace arrives within one day",
            value=f"draws {study.draws}",
            remedy="leave it out, or give a trace of several days",
        )
