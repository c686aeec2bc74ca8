"""A site is upgraded, its server learns it, and the model is trained again: `python -m tests.bench.retrained_upgrade`.

Log slowdowns become `factor · log s + constant + of the two families`, with a factor of .6 or 1.5, a constant of ± .2
and family terms of standard deviation .15. Half of the pairs are reported, in windows without a campaign. Prints the
mean errors of speed, on the newest windows and on the pairs that nobody reported, of the running belief and of each
retrained model with the same log.
"""

import math
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from interfere.data.importers.gavel import import_gavel
from interfere.data.tables import Table, write_table
from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.score import speed
from interfere.records import PairBatch, PairMeasurement, Progress
from interfere.serving.learning.log_fold import LogFold
from interfere.serving.state import load_served_model
from interfere.store.observed_table import logged_windows
from interfere.store.rows import NewObservation
from interfere.store.store import SqliteStore
from interfere.training.models.catalogue import MODELS
from interfere.training.models.protocols import ModelSettings
from interfere.training.publishing.model_registry import champion_folder
from interfere.training.retrain import retrain
from interfere.training.site_log import score_on_log
from tests.data.importers.public_files import public
from tests.training.cheap_models import CHEAP_MODELS

DEVICE, NOISE, REPORTED = "v100", 0.03, 0.5
Truth = Mapping[tuple[str, str], float]


def upgraded(table: Table, rng: np.random.Generator) -> Truth:
    """Return the log slowdown of every ordered pair after the upgrade."""
    family_of = {job.workload: job.family for job in table.jobs}
    families = sorted(set(family_of.values()))
    of_families = {(a, b): rng.normal(0, 0.15) for a in families for b in families}
    factor, constant = rng.choice([0.6, 1.5]), rng.choice([-0.2, 0.2])
    return {
        (pair.victim, pair.neighbour): max(
            factor * math.log(pair.slowdown)
            + constant
            + of_families[family_of[pair.victim], family_of[pair.neighbour]],
            0.0,
        )
        for pair in table.ok_pairs
    }


def windows(pairs: list[PairMeasurement], truth: Truth, first: int, rng: np.random.Generator) -> list[Progress]:
    """Return a window of each pair, in a random order."""
    return [
        Progress(
            observation_id=f"o{first + k}",
            job_id=f"j {pair.victim}",
            workload=pair.victim,
            company=(pair.neighbour,),
            device_type=pair.device_type,
            mode=pair.mode,
            slowdown=math.exp(truth[pair.victim, pair.neighbour] + NOISE * float(rng.normal())),
            start_s=1e9 + 60.0 * (first + k),
            end_s=1e9 + 60.0 * (first + k) + 60.0,
        )
        for k, pair in enumerate(pairs[index] for index in rng.permutation(len(pairs)).tolist())
    ]


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
    rng, encoder = np.random.default_rng(seed), FeatureEncoder()
    whole = import_gavel(public("gavel/oracle_throughputs.json"))
    table = Table(
        name="base",
        jobs=tuple(job for job in whole.jobs if job.device_type == DEVICE),
        pairs=tuple(pair for pair in whole.pairs if pair.device_type == DEVICE),
    )
    pairs = table.ok_pairs
    truth = upgraded(table, rng)
    is_reported = rng.random(len(pairs)) < REPORTED
    reported = [pair for pair, each in zip(pairs, is_reported, strict=True) if each]
    others = [pair for pair, each in zip(pairs, is_reported, strict=True) if not each]
    before = np.mean([abs(1 / pair.slowdown - math.exp(-truth[pair.victim, pair.neighbour])) for pair in others])
    print(f"seed {seed}: error of the old table {before:.4f}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        work, base = Path(place), Path(place) / "base"
        base.mkdir()
        write_table(base, table)
        store_path = work / "store.db"
        retrain([base], work, store=store_path, models=models)
        store, count = SqliteStore(store_path), 0
        for k in range(rounds + 1):
            if k:
                made = retrain([base], work, store=store_path, models=models)
                _tell(f"retrained {k} ({made.outcome.value}: {made.reason[:80]})", work, store, others, truth, encoder)
            store.observations.append(
                [NewObservation(observation=w) for w in windows(reported, truth, count, rng)], 2e9
            )
            count += len(reported)
            _tell(f"{count} windows", work, store, others, truth, encoder)
        store.close()


def _tell(
    what: str,
    work: Path,
    store: SqliteStore,
    others: list[PairMeasurement],
    truth: Truth,
    encoder: FeatureEncoder,
) -> None:
    folder = champion_folder(work)
    late = score_on_log(folder, encoder, logged_windows(store)[0], ()).error
    error, coverage = served_error(folder, store, others, truth)
    print(f"  {what}: newest windows {late:.4f}, unreported {error:.4f} ({coverage:.3f})", flush=True)


if __name__ == "__main__":
    names = sys.argv[3:]
    chosen = {name: MODELS[name] for name in names} if names else CHEAP_MODELS
    run(int(sys.argv[1]), int(sys.argv[2]), chosen)
