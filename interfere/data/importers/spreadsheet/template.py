"""Spreadsheets to fill in: a file of pairs, and a file of the jobs alone, with the columns that the importer reads."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from interfere.data.importers.spreadsheet.columns import MEASURES
from interfere.data.importers.spreadsheet.options import Shape
from interfere.errors import ConflictError, InvalidInputError
from interfere.file_writing import write_atomically
from interfere.sharing_modes import SharingMode

PAIRS_NAME, JOBS_NAME = "pairs.csv", "jobs.csv"
EXAMPLE_JOBS = ("resnet50-train", "bert-infer", "gpt-decode")
JOB_COLUMNS = ("step_time_ms", "gpu_util_percent", "memory_util_percent", "memory_peak_gib", "power_w", "family")


def write_template(
    folder: Path, jobs: Sequence[str], *, device_type: str, mode: SharingMode, value: str, shape: Shape
) -> tuple[Path, ...]:
    """Write both files, empty but for the names of the jobs; returns their paths.

    Raises ConflictError where one of them exists, InvalidInputError for an unknown measured value.
    """
    if value not in MEASURES:
        raise InvalidInputError("no such measured value", value=repr(value), remedy=f"one of {', '.join(MEASURES)}")
    if len(set(jobs)) < len(jobs):
        raise InvalidInputError("a job is named twice", value=", ".join(jobs), remedy="name each job once")
    pairs = _matrix(jobs, value) if shape is Shape.WIDE else _long(jobs, device_type, mode, value)
    profiles = [
        ["workload", "device_type", *JOB_COLUMNS],
        *([job, device_type, *[""] * len(JOB_COLUMNS)] for job in jobs),
    ]
    sheets = {folder / PAIRS_NAME: pairs, folder / JOBS_NAME: profiles}
    for path in sheets:
        if path.exists():
            raise ConflictError("the file exists", value=path, remedy="name another folder, or move the file away")
    for path, rows in sheets.items():
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        content = text.getvalue()
        write_atomically(path, lambda temporary, content=content: Path(temporary).write_text(content, encoding="utf-8"))
    return tuple(sheets)


def _long(jobs: Sequence[str], device_type: str, mode: SharingMode, value: str) -> list[list[str]]:
    """One row an unordered pair, with the value of either side."""
    head = ["victim", "neighbour", "device_type", "mode", value, f"neighbour_{value}"]
    alone = []
    if MEASURES[value].needs_solo:
        alone = [[job, "alone", device_type, mode, "", ""] for job in jobs]
    pairs = [[a, b, device_type, mode, "", ""] for k, a in enumerate(jobs) for b in jobs[k:]]
    return [head, *alone, *pairs]


def _matrix(jobs: Sequence[str], value: str) -> list[list[str]]:
    """One row a victim, one column a neighbour; a column of values alone where they are needed."""
    alone = ["alone"] if MEASURES[value].needs_solo else []
    return [[value, *jobs, *alone], *([job, *[""] * (len(jobs) + len(alone))] for job in jobs)]
