"""A site is upgraded, its server learns it, and the model is trained again: `python -m tests.bench.retrained_upgrade`.

The upgrade is `upgraded_by_families`. Half of the pairs are reported, in windows without a campaign; a tenth was never
measured before. Prints the mean errors of speed of the running belief, and of each retrained model with the same log:
on the newest windows, and on the pairs that nobody reported, with the coverage of their 90 % intervals. At the end, by
how much the error on the newest windows grew from the first retrained model to the last.
"""

import math
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from interfere.data.importers.gavel import import_gavel
from interfere.data.tables import Table, write_table
from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.score import speed
from interfere.records import PairBatch, PairMeasurement
from interfere.serving.learning.log_fold import LogFold
from interfere.serving.state import load_served_model
from interfere.store.observed_table import logged_windows
from interfere.store.rows import NewObservation
from interfere.store.store import SqliteStore
from interfere.training.evaluation.champion import score_on_log
from interfere.training.models.catalogue import MODELS
from interfere.training.models.protocols import ModelSettings
from interfere.training.publishing.model_registry import champion_folder
from interfere.training.retrain import retrain
from tests.data.importers.public_files import public
from tests.predict.online.belief_streams import upgraded_by_families
from tests.training.cheap_models import CHEAP_MODELS
from tests.training.worlds import observed_windows

DEVICE, REPORTED, UNMEASURED = "v100", 0.5, 0.1
Truth = Mapping[tuple[str, str], float]


def served_error(folder: Path, store: SqliteStore, pairs: list[PairMeasurement], truth: Truth) -> tuple[float, float]:
    """Return the mean error of speed, and the coverage of the 90 % intervals, of a folder served with a store."""
    model = load_served_model(folder)
    fold = LogFold(model.untaught, store.observations, store.checkpoints, model.catalogue(store.profiles))
    online, _ = fold.model_after(max(entry.sequence for entry in store.observations.newest(1)))
    errors, inside = [], []
    for pair in pairs:
        one = np.zeros(1, dtype=np.int64)
        jobs = tuple(model.shipped[name, pair.device_type] for name in (pair.victim, pair.neighbour))
        batch = PairBatch(jobs=jobs, victim=one, neighbour=one + 1, device_type=pair.device_type, mode=pair.mode)
        answer, true = online.predict_pairs(batch), truth[pair.victim, pair.neighbour]
        errors.append(abs(float(speed(np.log(answer.median))[0]) - math.exp(-true)))
        inside.append(bool(answer.lower[0] <= math.exp(true) <= answer.upper[0]))
    return float(np.mean(errors)), float(np.mean(inside))


def run(seed: int, rounds: int, models: Mapping[str, ModelSettings]) -> None:
    """Print the errors of the running belief, and after every round of retraining."""
    encoder = FeatureEncoder()
    whole = import_gavel(public("gavel/oracle_throughputs.json"))
    table = Table(
        name="base",
        jobs=tuple(job for job in whole.jobs if job.device_type == DEVICE),
        pairs=tuple(pair for pair in whole.pairs if pair.device_type == DEVICE),
    )
    pairs = table.ok_pairs
    family_of = {job.workload: job.family for job in table.jobs}
    rows = [(pair.device_type, pair.victim, pair.neighbour, math.log(pair.slowdown)) for pair in pairs]
    after, rng = upgraded_by_families(rows, family_of, seed)
    truth = {(pair.victim, pair.neighbour): value for pair, value in zip(pairs, after.tolist(), strict=True)}
    is_reported = rng.random(len(pairs)) < REPORTED
    is_measured = rng.random(len(pairs)) >= UNMEASURED
    reported = [pair for pair, each in zip(pairs, is_reported, strict=True) if each]
    others = {
        name: [pairs[k] for k in np.flatnonzero(~is_reported & kind).tolist()]
        for name, kind in (("measured", is_measured), ("never measured", ~is_measured))
    }
    before = np.mean(
        [abs(1 / pair.slowdown - math.exp(-truth[pair.victim, pair.neighbour])) for pair in others["measured"]]
    )
    print(f"seed {seed}: error of the old table {before:.4f}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        work, base = Path(place), Path(place) / "base"
        base.mkdir()
        write_table(base, replace(table, pairs=tuple(pairs[k] for k in np.flatnonzero(is_measured).tolist())))
        store_path = work / "store.db"
        retrain([base], work, store=store_path, models=models)
        store, count = SqliteStore(store_path), 0
        late: list[float] = []  # errors of the retrained models on the newest windows
        for k in range(rounds + 1):
            if k:
                made = retrain([base], work, store=store_path, models=models)
                what = f"retrained {k} ({made.outcome.value}: {made.reason[:80]})"
                late.append(_tell(what, work, store, others, truth, encoder))
            store.observations.append(
                [NewObservation(observation=w) for w in observed_windows(reported, truth, count, rng)], 2e9
            )
            count += len(reported)
            _tell(f"{count} windows", work, store, others, truth, encoder)
        store.close()
        if late:
            print(f"  from the first of {rounds} rounds to the last: {late[-1] - late[0]:+.4f}", flush=True)


def _tell(
    what: str,
    work: Path,
    store: SqliteStore,
    others: Mapping[str, list[PairMeasurement]],
    truth: Truth,
    encoder: FeatureEncoder,
) -> float:
    folder = champion_folder(work)
    late = score_on_log(folder, encoder, logged_windows(store)[0], ()).error
    line = f"  {what}: newest windows {late:.4f}"
    for name, pairs in others.items():
        error, coverage = served_error(folder, store, pairs, truth)
        line += f", {name} and unreported {error:.4f} ({coverage:.3f})"
    print(line, flush=True)
    return late


if __name__ == "__main__":
    names = sys.argv[3:]
    chosen = {name: MODELS[name] for name in names} if names else CHEAP_MODELS
    run(int(sys.argv[1]), int(sys.argv[2]), chosen)
