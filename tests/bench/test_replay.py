"""What sharing does to published traces: figures for the README, the known ones of the literature beside them.

Venus' four virtual clusters with Lucid's pairs (jobs without truth never share; vcvGl is overloaded and stands apart).
Intervals are of the mean over the recorded days; spreads are over the traces as recorded and further draws of their
days. Philly-derived traces are in `load_sweep` and `belief_sweep`.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.data.importers.import_result import ImportResult
from interfere.data.importers.lucid import import_lucid
from interfere.data.importers.published_traces import import_helios
from interfere.data.tables import Table, write_table
from interfere.data.traces import write_trace
from interfere.sim.schedulers.records import PRESETS
from interfere.study.comparison import Line
from interfere.study.engine import Runner
from interfere.study.questions import ask
from interfere.study.replay_question import ReplayAnswer
from interfere.study.study import Study
from interfere.training.study_models import TrainedModels
from tests.bench.history import record
from tests.data.importers.public_files import public

pytestmark = pytest.mark.bench
SHARED = "sjf-first-fit-matching"
# Change of mean completion time of the four clusters together by sharing, as a prototype had it with the same truth.
KNOWN_VENUS = {SHARED: -0.048, "srtf-first-fit-matching": -0.030}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces and tables, imported."""
    place = tmp_path_factory.mktemp("public")
    jobs, config = public("venus/jobs_4vc.csv"), public("venus/vc_config.csv")
    _trace(place / "venus", import_helios(jobs, vc_config=config))
    read = import_lucid(public("lucid"))
    write_table(place / "lucid", Table(name="lucid", jobs=read.jobs, pairs=read.pairs))
    return place


def _trace(folder: Path, read: ImportResult) -> None:
    assert read.trace is not None
    write_trace(folder, read.trace)


def asked(study: Study) -> ReplayAnswer:
    answer = ask(study, TrainedModels(), Runner(report=print))
    assert isinstance(answer, ReplayAnswer)
    return answer


@pytest.mark.timeout(1800)
def test_venus(folders: Path) -> None:
    policies = ("fifo", "fifo-first-fit", "sjf-first-fit-greedy", "sjf-easy-greedy", SHARED, "qssf-easy-matching")
    question = Study(
        trace=folders / "venus",
        table=folders / "lucid",
        draws=5,
        checkpoint_s=62.0,
        schedulers=tuple(
            PRESETS[name] for name in (*policies, "tiresias-first-fit-matching", "srtf-first-fit-matching")
        ),
    )
    answer = asked(question)
    figures = _figures("stable", answer.comparison.stable) | _figures("overloaded", answer.comparison.overloaded)
    for policy, known in KNOWN_VENUS.items():
        mean_s, against_s = (_all_recorded(answer, name) for name in (policy, policy.removesuffix("-matching")))
        figures[f"four clusters {policy} change"] = mean_s / against_s - 1
        print(f"four clusters as recorded, {policy}: {mean_s / against_s - 1:+.3f}, known {known:+.3f}")
    for backfill in ("first-fit", "easy"):
        policy = f"sjf-{backfill}-greedy"
        ruled = asked(
            replace(question, schedulers=(PRESETS[policy],), guest_may_stay=False, checkpoint_s=None)
        ).comparison
        figures |= _figures("guests end first, stable", ruled.stable)
        figures |= _figures("guests end first, overloaded", ruled.overloaded)
    record("replay-venus", figures)
    by_name = {line.policy: line for line in answer.comparison.stable}
    assert by_name["fifo"].score.mean_completion_s > 2 * by_name["fifo-first-fit"].score.mean_completion_s
    for policy in KNOWN_VENUS:
        assert figures[f"four clusters {policy} change"] < 0
    greedy, exact = by_name["sjf-first-fit-greedy"].change, by_name[SHARED].change
    assert greedy is not None
    assert exact is not None
    assert abs(greedy.mean - exact.mean) < 0.03
    assert exact.mean < 0


def _figures(kind: str, lines: Sequence[Line]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for line in lines:
        figures[f"{kind} {line.policy} mean h"] = line.score.mean_completion_s / 3600
        figures[f"{kind} {line.policy} s"] = line.seconds
        text = f"{kind} {line.policy:28} {line.score.mean_completion_s:9,.0f} s"
        if line.change is not None:
            interval, spread = line.change.interval, line.change.spread
            figures[f"{kind} {line.policy} change"] = line.change.mean
            text += f" {line.change.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}] ({interval.population})"
            text += f", spread [{spread.low:+.3f}, {spread.high:+.3f}] ({spread.population})"
        print(text)
    return figures


def _all_recorded(answer: ReplayAnswer, policy: str) -> float:
    """Mean completion time of all jobs of all clusters as recorded."""
    replays = [run.replayed for run in answer.comparison.runs if run.policy == policy and run.replayed is not None]
    return float(np.concatenate([replayed.completion_s for replayed in replays]).mean())
