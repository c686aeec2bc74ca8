"""A replay as files for people and programs: the HTML page, JSON facts, Parquet, CSV and the draws of deadlines."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interfere.file_writing import write_atomically
from interfere.reports.html_page import write_html_page
from interfere.sim.edge_world import save_draws
from interfere.sim.score import Score
from interfere.study.replay.report import ReplayFindings, replay_document, verdicts
from interfere.study.replays import ReplayResult
from interfere.study.study import study_facts

DRAWS_FILE = "deadlines.json"


def replay_facts(answer: ReplayFindings, written: Sequence[Path]) -> dict[str, Any]:
    """Return all results except those of single jobs, as a JSON document. `written`: the files of the report."""
    comparison = answer.comparison
    content: dict[str, Any] = {
        "question": study_facts(answer.study),
        "coverage": answer.coverage.facts(),
        "notes": answer.notes,
        "verdicts": verdicts(answer),
        "tuned_on_this_trace": dict(answer.tuned),
        "cap": comparison.cap,
        "stable": [asdict(line) for line in comparison.stable],
        "overloaded": [asdict(line) for line in comparison.overloaded],
        "runs": [_run(run) for run in comparison.runs],
        "files": [str(path) for path in written],
    }
    if answer.product is not None:
        content["groups_by_product"] = {
            "stable": [asdict(line) for line in answer.product.stable],
            "overloaded": [asdict(line) for line in answer.product.overloaded],
        }
    if answer.deadline_draws:
        recorded = [run for run in comparison.runs if run.task.is_recorded]
        content["deadlines"] = [asdict(line) for line in comparison.deadlines]
        content["worlds"] = list(dict.fromkeys(run.world for run in recorded))
        content["draws_file"] = next((str(path) for path in written if path.name == DRAWS_FILE), "")
        content["schedulers"] = {
            scheduler.label: [_score(run.score) for run in recorded if run.task.scheduler == scheduler]
            for scheduler in answer.study.schedulers
        }
    return content


def _score(score: Score) -> dict[str, Any]:
    return asdict(score) | {"satisfaction": score.satisfaction}


def _run(run: ReplayResult) -> dict[str, Any]:
    head = {
        "policy": run.policy,
        "world": run.world,
        "draw": run.task.draw,
        "tie": run.task.tie,
        "load": run.load,
        "seconds": run.seconds,
    }
    return head | _score(run.score)


def write_report(folder: Path, answer: ReplayFindings) -> list[Path]:
    """Write `report.html`, `runs.csv`, `jobs.parquet`, and with deadlines `deadlines.json`, each whole or not at all.

    Raises UnfitError where the folder cannot be written.
    """
    runs = answer.comparison.runs
    written: list[Path] = []

    def write(name: str, save: Callable[[str], object]) -> None:
        write_atomically(folder / name, save)
        written.append(folder / name)

    written.append(write_html_page(folder / "report.html", replay_document(answer)))
    write("runs.csv", lambda temporary: Path(temporary).write_text(_csv(runs), encoding="utf-8"))
    write("jobs.parquet", lambda temporary: _write_jobs(temporary, runs))
    if answer.deadline_draws:
        write(DRAWS_FILE, lambda temporary: save_draws(Path(temporary), answer.deadline_draws))
    return written


def _csv(runs: Iterable[ReplayResult]) -> str:
    rows = [_run(run) for run in runs]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _write_jobs(path: str, runs: Iterable[ReplayResult]) -> None:
    """One row per job, world and policy, of the trace as recorded. No deadline and no promise are null."""
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
            "workload": [job.workload for job in jobs],
            "gpus": [job.gpus for job in jobs],
            "arrival_s": [job.arrival_s for job in jobs],
            "duration_s": [job.duration_s for job in jobs],
            "started_s": replayed.started_s,
            "ended_s": replayed.ended_s,
            "stops": replayed.stops,
            "deadline_s": pa.array([job.deadline_s if job.has_deadline else None for job in jobs], pa.float64()),
            "promised_s": pa.array(replayed.promised_s, pa.float64(), from_pandas=True),
        }
        parts.append(pa.table(columns))
    pq.write_table(pa.concat_tables(parts), path, compression="zstd")
