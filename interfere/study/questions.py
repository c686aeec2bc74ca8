"""Questions to traces: each resolves a study, plans its replays, and answers from what they came to.

`ask` is the whole of a study. A question of one's own is a class with the four members of `Question`, named
`package:Class` in the study.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from interfere.errors import InvalidInputError
from interfere.reports.document import Document
from interfere.study.engine import Runner
from interfere.study.inputs import StudyInputs, StudyModels
from interfere.study.replays import ReplayInputs, ReplayResult, ReplayTask, results_of, run_replays
from interfere.study.study import Study

QUESTIONS = {
    "replay": "interfere.study.replay_question:ReplayQuestion",
    "whatif": "interfere.study.whatif_question:WhatIfQuestion",
}


class Answer(Protocol):
    """The result of a study, for people and for programs."""

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped the study, so that the answer covers only the finished replays."""

    def document(self) -> Document:
        """Return the report."""

    def facts(self, files: Sequence[Path]) -> dict[str, Any]:
        """Return all results as one JSON document. `files`: the files that `write` has written."""

    def write(self, folder: Path) -> list[Path]:
        """Write the report's files. Raises UnfitError where the folder cannot be written."""


class Question(Protocol):
    """A question about a trace."""

    def resolved(self, study: Study) -> Study:
        """Return the study with every default filled in. Raises InvalidInputError for a field that would change
        nothing."""

    def inputs(self, study: Study, models: StudyModels) -> StudyInputs:
        """Return the inputs of the study."""

    def plan(self, study: Study, inputs: StudyInputs) -> tuple[ReplayInputs, list[ReplayTask]]:
        """Return the replays, in order of their value to an interrupted study."""

    def answer(
        self, study: Study, inputs: StudyInputs, results: Sequence[ReplayResult], *, planned: int, interrupted: bool
    ) -> Answer:
        """Return the answer from the results that were computed, in the order of the plan."""


def ask(study: Study, models: StudyModels, runner: Runner | None = None) -> Answer:
    """Answer a study: read its inputs, replay its tasks, and compare. An interrupted study goes on from the kept
    results.

    Raises TableError and ModelError for files that break their format, InvalidInputError for fields that contradict
    each other or would change nothing, UnfitError for jobs that could never run, and KeyboardInterrupt where nothing
    was done before it.
    """
    runner = runner or Runner()
    question = find_question(study.question)
    study = question.resolved(study)
    inputs = question.inputs(study, models)
    runner.say(inputs.coverage.note())
    for note in inputs.notes:
        runner.say(note)
    replays, tasks = question.plan(study, inputs)
    done = run_replays(replays, tasks, runner)
    return question.answer(study, inputs, results_of(replays, done), planned=done.tasks, interrupted=done.interrupted)


def find_question(name: str) -> Question:
    """Return the question of this name, or of the class `package:Class`. Raises InvalidInputError for an unknown
    name."""
    module, _, attribute = QUESTIONS.get(name, name).partition(":")
    try:
        question: Question = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(
            "no such question", value=f"{name}: {error}", remedy=f"{', '.join(QUESTIONS)}, or package:Class"
        ) from None
    return question
