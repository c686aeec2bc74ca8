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
from interfere.sim.study_runs import Run
from interfere.training.replay.answer import Answer
from interfere.training.replay.report import replay_document, verdicts

DRAWS_FILE = "deadlines.json"


def replay_facts(answer: Answer, written: Sequence[Path]) -> dict[str, Any]:
    """Everything but the single jobs, for programs. `written`: the files of the report."""
    study = answer.study
    content: dict[str, Any] = {
        "question": {k: str(v) if isinstance(v, Path) else v for k, v in asdict(answer.question).items()},
        "coverage": asdict(answer.coverage)
        | {"job_share": answer.coverage.job_share, "gpu_h_share": answer.coverage.gpu_h_share},
        "notes": answer.notes,
        "verdicts": verdicts(answer),
        "tuned_on_this_trace": dict(answer.tuned),
        "cap": study.cap,
        "stable": [asdict(line) for line in study.stable],
        "overloaded": [asdict(line) for line in study.overloaded],
        "runs": [_run(run) for run in study.runs],
        "files": [str(path) for path in written],
    }
    if answer.product is not None:
        content["groups_by_product"] = {
            "stable": [asdict(line) for line in answer.product.stable],
            "overloaded": [asdict(line) for line in answer.product.overloaded],
        }
    if answer.deadline_draws:
        recorded = [run for run in study.runs if run.draw == run.tie == 0]
        content["deadlines"] = [asdict(line) for line in study.deadlines]
        content["worlds"] = list(dict.fromkeys(run.world for run in recorded))
        content["draws_file"] = next((str(path) for path in written if path.name == DRAWS_FILE), "")
        content["schedulers"] = {
            policy: [_score(run.score) for run in recorded if run.policy == policy]
            for policy in answer.question.policies
        }
    return content


def _score(score: Score) -> dict[str, Any]:
    return asdict(score) | {"satisfaction": score.satisfaction}


def _run(run: Run) -> dict[str, Any]:
    head = {
        "policy": run.policy,
        "world": run.world,
        "draw": run.draw,
        "tie": run.tie,
        "load": run.load,
        "seconds": run.seconds,
    }
    return head | _score(run.score)


def write_report(folder: Path, answer: Answer) -> list[Path]:
    """Write `report.html`, `runs.csv`, `jobs.parquet`, and with deadlines `deadlines.json`, each whole or not at all.

    Raises UnfitError where the folder cannot be written.
    """
    runs = answer.study.runs
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


def _csv(runs: Iterable[Run]) -> str:
    rows = [_run(run) for run in runs]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _write_jobs(path: str, runs: Iterable[Run]) -> None:
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
