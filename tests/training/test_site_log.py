"""What a server learned of an upgraded site is not thrown away by a retraining, and no worse model is published."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from interfere.data.tables import Table, write_table
from interfere.features.pair import FeatureEncoder
from interfere.records import PairBatch, PairMeasurement, Progress
from interfere.serving.learning.log_fold import LogFold
from interfere.serving.state import load_served_model
from interfere.store.observed_table import LoggedWindow, logged_windows
from interfere.store.rows import NewObservation
from interfere.store.store import SqliteStore
from interfere.training.evaluation.champion import LogScore, score_on_log
from interfere.training.evaluation.drift import changed_domains
from interfere.training.publishing.model_registry import champion_folder
from interfere.training.retrain import RetrainOutcome, RetrainResult, retrain
from tests.training.cheap_models import CHEAP_MODELS
from tests.training.worlds import crossed, observed_windows, world

JOBS = 14


def upgraded(pair: PairMeasurement) -> float:
    """The pair's log slowdown on another stack: a factor, a constant, and effects of both jobs."""
    victim, neighbour = (int(name.removeprefix("w")) for name in (pair.victim, pair.neighbour))
    shift = 0.15 * math.sin(3 * victim) + 0.1 * math.cos(5 * neighbour)
    return 0.6 * math.log(pair.slowdown) + 0.25 + shift


def unchanged(pair: PairMeasurement) -> float:
    return math.log(pair.slowdown)


def reported(pair: PairMeasurement) -> bool:
    return (int(pair.victim[1:]) * 7 + int(pair.neighbour[1:]) * 3) % 10 < 5


def site_windows(table: Table, truth: Callable[[PairMeasurement], float], *, passes: int, start: int) -> list[Progress]:
    """Unnamed windows of the reported half of the pairs, in a random order, `passes` of each."""
    pairs = [pair for pair in table.ok_pairs if reported(pair)] * passes
    known = {(pair.victim, pair.neighbour): truth(pair) for pair in pairs}
    return observed_windows(pairs, known, start, np.random.default_rng(start))


@pytest.fixture(scope="module")
def base() -> Table:
    return world(crossed, JOBS, name="base")


@pytest.fixture(scope="module")
def base_folder(base: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables") / "base"
    folder.mkdir()
    write_table(folder, base)
    return folder


def logged(windows: list[Progress]) -> list[LoggedWindow]:
    return [LoggedWindow(k + 1, window, False, window.slowdown) for k, window in enumerate(windows)]


def test_an_upgrade_is_found_with_its_first_window_and_noise_is_none(base: Table) -> None:
    before = site_windows(base, unchanged, passes=2, start=0)
    after = site_windows(base, upgraded, passes=2, start=len(before))
    assert changed_domains([base], logged(before)) == ()
    (change,) = changed_domains([base], logged([*before, *after]))
    assert (change.device_type, change.mode) == (base.ok_pairs[0].device_type, base.ok_pairs[0].mode)
    assert abs(change.sequence - len(before)) <= 12
    assert change.campaign(change.sequence) != change.campaign(change.sequence - 1)


def served_error(folder: Path, base: Table, store: SqliteStore, truth: Callable[[PairMeasurement], float]) -> float:
    """Mean error of log slowdown on the pairs that nobody reported, of the model served with the store's log."""

    model = load_served_model(folder)
    catalogue = model.catalogue(store.profiles)
    fold = LogFold(model.untaught, store.observations, store.checkpoints, catalogue)
    online, _ = fold.model_after(max(entry.sequence for entry in store.observations.newest(1)))
    errors = []
    for pair in base.ok_pairs:
        if reported(pair):
            continue
        jobs = tuple(model.shipped[name, pair.device_type] for name in (pair.victim, pair.neighbour))
        one = np.zeros(1, dtype=np.int64)
        batch = PairBatch(jobs=jobs, victim=one, neighbour=one + 1, device_type=pair.device_type, mode=pair.mode)
        errors.append(abs(math.log(online.predict_pairs(batch).median[0]) - truth(pair)))
    return float(np.mean(errors))


def test_retraining_keeps_what_was_learned_of_an_upgraded_site(base: Table, base_folder: Path, tmp_path: Path) -> None:
    store_path = tmp_path / "store.db"

    def run() -> RetrainResult:
        return retrain([base_folder], tmp_path, store=store_path, models=CHEAP_MODELS)

    assert run().outcome is RetrainOutcome.PUBLISHED
    store = SqliteStore(store_path)
    windows = site_windows(base, upgraded, passes=2, start=0)
    store.observations.append([NewObservation(observation=window) for window in windows], 2e9)
    served = champion_folder(tmp_path)
    log, _ = logged_windows(store)
    before, running = score_on_log(served, FeatureEncoder(), log, ()), served_error(served, base, store, upgraded)
    made = run()
    assert made.outcome is RetrainOutcome.PUBLISHED, made.reason
    assert [(change.device_type, change.mode) for change in made.observed.changes] == [
        (base.ok_pairs[0].device_type, base.ok_pairs[0].mode)
    ]
    first = served_error(served, base, store, upgraded)
    assert score_on_log(served, FeatureEncoder(), log, ()).error <= before.error + 0.003
    assert first <= running + 0.003, "the published model knows less of unreported pairs than the running belief did"
    unreported = [pair for pair in base.ok_pairs if not reported(pair)]
    assert first <= 0.35 * np.mean([abs(unchanged(pair) - upgraded(pair)) for pair in unreported])
    # A later retraining, on the same base table and a longer log, does not drift back.
    more = site_windows(base, upgraded, passes=1, start=len(windows))
    store.observations.append([NewObservation(observation=window) for window in more], 3e9)
    assert run().outcome in (RetrainOutcome.PUBLISHED, RetrainOutcome.REFUSED)
    assert served_error(served, base, store, upgraded) <= first + 0.005
    store.close()


def test_a_model_that_errs_more_on_the_newest_windows_is_refused_with_both_figures() -> None:
    served = LogScore(windows=200, error=0.03)
    refusal = LogScore(windows=200, error=0.2).refusal(served)
    assert refusal.startswith("refused: ")
    assert "0.200" in refusal
    assert "0.030" in refusal
    assert LogScore(windows=200, error=0.031).refusal(served) == ""
    assert LogScore(windows=5, error=0.5).refusal(served) == ""
    assert LogScore(windows=200, error=0.5).refusal(LogScore(windows=0, error=math.nan)) == ""
