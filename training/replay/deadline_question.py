"""`interfere replay --deadlines`: schedulers of deadlines on the worlds of a trace, with idle edge devices."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from interfere.data.tables import read_table
from interfere.data.traces import read_trace
from interfere.errors import InvalidInputError
from interfere.sim.deadline_study import Setting, played, schedulers, table
from interfere.sim.deadlines import DAY_S, FAMILIES, DeadlineScore, Draws, drawn, read_draws, save_draws
from interfere.sim.world import World
from training.replay.question import Question, belief_asked, truth_asked, worlds_asked


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineAnswer:
    """Scores of every scheduler on every world, in the same order."""

    worlds: tuple[str, ...]
    scores: Mapping[str, Sequence[DeadlineScore]]
    notes: tuple[str, ...]
    draws_file: str

    def document(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "worlds": list(self.worlds),
            "notes": list(self.notes),
            "draws_file": self.draws_file,
            "schedulers": {
                name: [{**asdict(one), "satisfaction": one.satisfaction} for one in mine]
                for name, mine in self.scores.items()
            },
        }

    def summary(self) -> str:
        """For people."""
        return table(self.scores)


def deadlines_replayed(
    question: Question,
    deadlines: str,
    *,
    out: Path | None,
    added: bool,
    taken: bool,
    report: Callable[[str], None],
) -> DeadlineAnswer:
    """Read, draw or read draws, replay and score; with `out` the draws are saved there. Raises as `replayed` does."""
    makers = schedulers()
    unknown = [name for name in question.policies if name not in makers]
    if unknown:
        raise InvalidInputError(
            "unknown scheduler of deadlines", value=unknown[0], remedy=f"one of {', '.join(makers)}"
        )
    measured, trace = read_table(question.truth), read_trace(question.trace)
    truth = truth_asked(question, measured)
    found = worlds_asked(question, trace, truth)
    belief, _, note = belief_asked(question, measured, truth)
    clock = "" if math.isfinite(trace.start_s) else "the trace does not say when it began: it begins at midnight"
    notes = tuple(filter(None, (truth.note(), found.note(), note, clock)))
    for line in notes:
        report(line)
    draws = _draws(found.worlds, deadlines, question.seed)
    draws_file = ""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        save_draws(out / "deadlines.json", draws)
        draws_file = str(out / "deadlines.json")
        report(draws_file)
    setting = Setting(instead=not added, taken=taken, seed=question.seed)
    clock_s = 0.0 if clock else trace.start_s % DAY_S
    edges = [setting.world(world, one, clock_s) for world, one in zip(found.worlds, draws, strict=True)]
    scores: dict[str, list[DeadlineScore]] = {}
    for name in question.policies or makers:
        report(name)
        scores[name] = [played(edge, makers[name], truth, belief) for edge in edges]
    worlds = tuple(world.name for world in found.worlds)
    return DeadlineAnswer(worlds=worlds, scores=scores, notes=notes, draws_file=draws_file)


def _draws(worlds: Sequence[World], deadlines: str, seed: int) -> list[Draws]:
    """In the order of the worlds."""
    if deadlines in FAMILIES or not Path(deadlines).exists():
        return [drawn(world, deadlines, seed) for world in worlds]
    read = {one.world: one for one in read_draws(Path(deadlines))}
    missing = [world.name for world in worlds if world.name not in read]
    if missing:
        raise InvalidInputError(
            f"no deadlines of world {missing[0]} in the file",
            value=deadlines,
            remedy=f"it has {', '.join(read) or 'none'}; draw anew with one of {', '.join(FAMILIES)}",
        )
    return [read[world.name] for world in worlds]
