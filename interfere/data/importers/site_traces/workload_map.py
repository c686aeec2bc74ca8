"""Names of workloads for the job names of a site: a CSV file `pattern,workload` of regular expressions.

The first row whose pattern is found in the job's name gives its workload. Law: a name that no pattern matches gets no
workload; a job without one runs alone in a replay.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from interfere.data.importers.import_result import SourceFile
from interfere.data.importers.strict_reading import read_csv
from interfere.errors import InvalidInputError

COLUMNS = ("pattern", "workload")
MAX_NAMES = 5  # of unmatched jobs that a notice shows, the most frequent


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadMap:
    """Patterns in order, and the file they are from."""

    patterns: tuple[tuple[re.Pattern[str], str], ...]
    source: SourceFile

    def workload(self, job_name: str) -> str:
        """The workload of a job; empty where no pattern matches its name."""
        return next((workload for pattern, workload in self.patterns if pattern.search(job_name)), "")


def read_workload_map(path: Path) -> WorkloadMap:
    """The map in a CSV file. Raises TableError, which names file and row."""
    file = read_csv(path, COLUMNS)
    patterns = []
    for row in file.rows:
        try:
            patterns.append((re.compile(row.text("pattern")), row.text("workload")))
        except re.error as error:
            row.fail("pattern", f"not a regular expression ({error})", "escape special characters with a backslash")
    return WorkloadMap(patterns=tuple(patterns), source=file.source)


def frequent_names(names: Iterable[str]) -> str:
    """The most frequent of these names with their counts, for a notice."""
    return ", ".join(f"{name} ({count})" for name, count in Counter(names).most_common(MAX_NAMES))


def column_map(assignments: Iterable[str]) -> dict[str, str]:
    """Field -> column of a list of `FIELD=COLUMN`. Raises InvalidInputError for one that is not of this form."""
    columns = {}
    for assignment in assignments:
        field, equals, column = assignment.partition("=")
        if not (field and equals and column):
            raise InvalidInputError("not FIELD=COLUMN", value=assignment, remedy="for example gpus=AllocGPUs")
        columns[field] = column
    return columns
