"""A device type that the model never saw: Gavel's, each held out in turn, after 5, 10 and 20 observed pairs."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from interfere.data.importers.gavel import import_gavel
from interfere.data.tables import Table
from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.score import speed
from interfere.predict.residual import OnlineModel
from interfere.profiling.static.profiles import attach_static
from interfere.records import JobProfile, PairBatch, Progress
from interfere.training.dataset import Dataset, build_dataset
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.models.catalogue import MODELS
from interfere.training.publishing.residual_prior import fit_residual_prior, out_of_fold_errors
from tests.bench.history import record
from tests.data.importers.public_files import public
from tests.tables import TablePredictor

pytestmark = pytest.mark.bench
MODEL = MODELS["ensemble"]  # the champion on this table
STEPS, SEEDS = (5, 10, 20), range(10)
MAX_MEAN_ERROR, MIN_COVERAGE = 0.06, 0.85
# A model that is fitted again with the 20 pairs has .039 to .047 on the K80, .078 to .081 on the P100 and .047 to .055
# on the V100: no limit of a single type can lie below that.
MAX_ERROR = {"k80": 0.05, "p100": 0.08, "v100": 0.065}
SPREAD = 1.3  # of the intervals of the model's own answers


class HeldOutDevice:
    """Predictions, prior and facts of models that saw all device types but one."""

    def __init__(self, dataset: Dataset, domain: int, profiles: Sequence[JobProfile]) -> None:
        place = dataset.domains[domain]
        self.device_type, self.mode = place.device_type, place.mode
        known, unseen = dataset.take(dataset.domain != domain), dataset.take(dataset.domain == domain)
        # 1. The model, asked about a device type that it does not know.
        fitted = MODEL.fit(known, 0)
        rows = replace(unseen.rows, domain=np.zeros_like(unseen.rows.domain))
        names = [
            (dataset.workloads[v - 1], dataset.workloads[n - 1])
            for v, n in zip(rows.victim, rows.neighbour, strict=True)
        ]
        self.predicted = dict(zip(names, np.exp(fitted.predict(rows)).tolist(), strict=True))
        self.measured = dict(zip(names, unseen.log_slowdown.tolist(), strict=True))
        # 2. The prior of its errors.
        by_job, by_pair = evaluate_models(known, [MODEL], splits=("job", "pair"))
        self.prior = fit_residual_prior(known, out_of_fold_errors(known, by_job), out_of_fold_errors(known, by_pair))
        # 3. Profiles and coordinates of the jobs.
        used = {name for pair in names for name in pair}
        self.profiles = {
            job.workload: job for job in profiles if job.device_type == place.device_type and job.workload in used
        }
        width = len(dataset.job_columns)
        jobs = {name: rows.pairs[k][:width] for k, (name, _) in enumerate(names)}
        jobs |= {name: rows.pairs[k][width : 2 * width] for k, (_, name) in enumerate(names)}
        self._coordinates = dict(zip(jobs, fitted.space.standardised(np.array(list(jobs.values()))), strict=True))

    def model(self) -> OnlineModel:
        """A model that has observed nothing."""
        predictor = TablePredictor(self.predicted, devices=(), spread=SPREAD)
        return OnlineModel(
            predictor,
            self.prior,
            coordinates=lambda jobs, *_: np.array([self._coordinates[job.workload] for job in jobs]),
        )

    def observe(self, model: OnlineModel, victim: str, neighbour: str) -> None:
        """One window of a pair."""
        window = Progress(
            observation_id="w",
            job_id="j",
            workload=victim,
            company=(neighbour,),
            device_type=self.device_type,
            mode=self.mode,
            start_s=0.0,
            end_s=1.0,
            slowdown=float(np.exp(self.measured[victim, neighbour])),
        )
        model.observe(window, lambda name, _: self.profiles[name])

    def score(self, model: OnlineModel, pairs: Sequence[tuple[str, str]]) -> tuple[float, float]:
        """(MAE of speed, coverage of the 90 % intervals) of pairs."""
        index = {name: k for k, name in enumerate(self.profiles)}
        victim, neighbour = np.array([(index[v], index[n]) for v, n in pairs]).T
        batch = PairBatch(
            jobs=tuple(self.profiles.values()),
            victim=victim,
            neighbour=neighbour,
            device_type=self.device_type,
            mode=self.mode,
        )
        answer, truth = model.predict_pairs(batch), np.array([self.measured[pair] for pair in pairs])
        inside = (answer.lower <= np.exp(truth)) & (np.exp(truth) <= answer.upper)
        return float(np.abs(speed(np.log(answer.median)) - speed(truth)).mean()), float(inside.mean())


@pytest.mark.timeout(3600)
def test_twenty_pairs_of_an_unseen_device_type() -> None:
    got = import_gavel(public("gavel/oracle_throughputs.json"))
    table = Table(name="gavel", jobs=attach_static(got.jobs).jobs, pairs=got.pairs)
    dataset = build_dataset([table], FeatureEncoder())
    figures: dict[str, float] = {}
    for domain in range(len(dataset.domains)):
        held_out = HeldOutDevice(dataset, domain, table.jobs)
        scores = {k: [] for k in STEPS}
        for seed in SEEDS:
            unordered = sorted({tuple(sorted(pair)) for pair in held_out.measured})
            order = [unordered[k] for k in np.random.default_rng(seed).permutation(len(unordered))]
            observed, asked = order[: max(STEPS)], {*order[max(STEPS) :]}
            others = [pair for pair in held_out.measured if tuple(sorted(pair)) in asked]
            model = held_out.model()
            for k, (first, second) in enumerate(observed, start=1):
                for pair in dict.fromkeys([(first, second), (second, first)]):
                    if pair in held_out.measured:
                        held_out.observe(model, *pair)
                if k in STEPS:
                    scores[k].append(held_out.score(model, others))
        for k in STEPS:
            error, coverage = np.mean(scores[k], axis=0).tolist()
            figures |= {f"{held_out.device_type} error {k}": error, f"{held_out.device_type} coverage {k}": coverage}
            print(f"{held_out.device_type}, {k} pairs: error {error:.4f}, coverage {coverage:.3f}")
    mean = float(np.mean([figures[f"{name} error 20"] for name in MAX_ERROR]))
    print(f"mean error after 20 pairs: {mean:.4f}")
    record("online-unseen-device", figures | {"mean error 20": mean})
    assert mean <= MAX_MEAN_ERROR
    assert all(figures[f"{name} error 20"] <= limit for name, limit in MAX_ERROR.items())
    assert all(figures[f"{name} coverage {k}"] >= MIN_COVERAGE for name in MAX_ERROR for k in STEPS)
