"""Rows that repeat a job share its encoding: each distinct job is completed once, however many rows it has."""

import numpy as np
import pytest

from interfere.predict.completion import FactCompletion
from interfere.training.dataset import Dataset
from interfere.training.models.completed import complete_rows, completion_of, distinct_jobs, jobs_of_rows


def test_distinct_jobs_are_those_of_the_rows_bit_by_bit(small_dataset: Dataset) -> None:
    rows = small_dataset.rows.take(np.arange(len(small_dataset)).repeat(3))
    found = distinct_jobs(rows)
    for jobs, place in zip(jobs_of_rows(rows), (found.victim, found.neighbour), strict=True):
        np.testing.assert_array_equal(found.jobs[place].view(np.uint32), np.ascontiguousarray(jobs).view(np.uint32))
    assert len({job.tobytes() for job in found.jobs}) == len(found.jobs) < len(rows)


def test_each_distinct_job_is_completed_once(small_dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, completion = small_dataset.rows.take(np.arange(len(small_dataset)).repeat(50)), completion_of(small_dataset)
    asked: list[int] = []
    complete = FactCompletion.complete

    def counted(self: FactCompletion, jobs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        asked.append(len(jobs))
        return complete(self, jobs)

    monkeypatch.setattr(FactCompletion, "complete", counted)
    completed = complete_rows(rows, completion)
    assert asked == [len(distinct_jobs(rows).jobs)]
    for jobs, before in zip(jobs_of_rows(completed), jobs_of_rows(rows), strict=True):
        np.testing.assert_allclose(jobs, complete(completion, np.ascontiguousarray(before))[0], rtol=1e-6)
