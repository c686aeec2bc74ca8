"""The results of a sweep as a file of JSON lines, from which an interrupted sweep goes on.

The first line names the format and the checksum of the sweep's inputs; each other line is one result. Laws: results of
other inputs are never mixed in; a line that was not written to its end is run again.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interfere.errors import InvalidInputError, UnfitError
from interfere.sim.sweeps.tasks import SweepResult, SweepTask
from interfere.sim.truth import Composition

RESULTS_FILE = "sweep.jsonl"
FORMAT = 1


class SavedResults:
    """Reads and appends the results of one sweep in a folder."""

    def __init__(self, folder: Path, digest: str) -> None:
        """Make or open the file. Raises InvalidInputError where it holds another sweep, UnfitError where the folder
        cannot be written."""
        self._path = folder / RESULTS_FILE
        self._found: dict[SweepTask, SweepResult] = {}
        head = json.dumps({"format": FORMAT, "digest": digest})
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
            if lines and lines[0] != head:
                raise InvalidInputError(
                    "the folder holds results of another trace, truth, seed or version",
                    value=str(self._path),
                    remedy="give another folder, or delete the file to begin anew",
                )
            self._found = {result.task: result for result in map(_result, lines[1:]) if result is not None}
            whole = [head, *(json.dumps(_document(result)) for result in self._found.values())]
            self._path.write_text("".join(f"{line}\n" for line in whole), encoding="utf-8")
        except OSError as error:
            raise UnfitError(
                f"results cannot be kept ({error})", value=str(folder), remedy="give another folder"
            ) from None

    def of(self, tasks: Iterable[SweepTask]) -> list[SweepResult]:
        """The results of these tasks that are there."""
        return [self._found[task] for task in tasks if task in self._found]

    def add(self, result: SweepResult) -> None:
        """Append one result."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(_document(result))}\n")
        self._found[result.task] = result


def _document(result: SweepResult) -> dict[str, Any]:
    document = asdict(result)
    cap = result.task.max_slowdown
    document["task"]["max_slowdown"] = cap if math.isfinite(cap) else None
    return document


def _result(line: str) -> SweepResult | None:
    """The result in a line; None where the line was not written to its end."""
    try:
        document = json.loads(line)
        task = document.pop("task")
        task["max_slowdown"] = math.inf if task["max_slowdown"] is None else task["max_slowdown"]
        task["composition"] = Composition(task.get("composition", Composition.SUM))
        document["completion_s_by_day"] = tuple(document["completion_s_by_day"])
        return SweepResult(task=SweepTask(**task), **document)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
