"""Pairs past a slowdown cap on the user's copy of Gavel's table, when 30 % of its pairs were never measured.

24 of its 26 jobs on 12 devices, 200 draws; of each plan the share of pairs in which a job is truly slowed down more
than 1.5 times, or which do not fit. Decided by `plan` at the objective "first the fewest pairs expected past the cap,
then the least slowdown", on what the server would answer: a seen pair by its measurement, a hidden one by the ensemble.
A pair measured once gets the model's interval around its measurement; beside that, as if measurements were certain, the
model without measurements, its medians taken for certain, perfect knowledge, the least predicted slowdown without a
cap, and random pairs.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from interfere.data.importers.gavel import import_gavel
from interfere.data.tables import Table
from interfere.devices import find_device_type
from interfere.features.pair import FeatureEncoder
from interfere.predict.measured import MeasuredPredictor, MeasuredSlowdown, PairKey
from interfere.profiling.static.profiles import attach_static
from interfere.records import (
    Device,
    Job,
    JobProfile,
    Limits,
    MatrixBatch,
    MatrixPrediction,
    ObjectiveKind,
    ObjectiveTerm,
    PairBatch,
    PairStatus,
    Prediction,
    Snapshot,
    Source,
)
from interfere.training.dataset import METRIC, build_dataset, unordered_pair
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.evaluation.interval_calibration import calibrate_intervals, partner_counts
from interfere.training.models.ensemble import EnsembleModel
from interfere.training.models.feasibility import feasibility_rows, fit_feasibility
from tests.bench.history import record
from tests.data.importers.public_files import public
from tests.tables import context, plan

pytestmark = pytest.mark.bench
Floats = NDArray[np.float64]

CAP, JOBS, DRAWS, SEED, HIDDEN = 1.5, 24, 200, 0, 0.3
MISFIT_RISK = 0.5  # likelier to fit than not
LIMITS = {"p100": 0.08, "v100": 0.30}  # share of pairs past the cap that must hold
FEWEST = (
    ObjectiveTerm(kind=ObjectiveKind.PAIRS_PAST_CAP, weight=100.0),  # more than 24 slowdowns ever come to
    ObjectiveTerm(kind=ObjectiveKind.TOTAL_SLOWDOWN),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """A predictor of known workloads on one device type: log slowdown[victim, neighbour], and how far it may be off."""

    names: tuple[str, ...]
    log_slowdown: Floats  # float64[n, n]
    shift: Callable[[float], Floats]  # float64[n, n] in log slowdown at a level
    fits: Floats  # float64[n, n]
    version: str = "tables"

    def knows(self, device_type: str, mode: str) -> str:
        return ""

    def _at(self, level: float) -> Floats:
        return np.exp(self.log_slowdown + self.shift(level))

    def _places(self, jobs: Sequence[JobProfile]) -> list[int]:
        return [self.names.index(job.workload) for job in jobs]

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        places = np.array(self._places(batch.jobs))
        at = places[batch.victim], places[batch.neighbour]
        return Prediction(
            median=self._at(0.5)[at],
            lower=self._at(0.05)[at],
            upper=self._at(0.95)[at],
            feasibility=self.fits[at],
            source=(Source.MODEL,) * len(batch),
            reason=("",) * len(batch),
        )

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        at = np.ix_(self._places(batch.victims), self._places(batch.neighbours))
        all_of = self._at(quantile)
        return MatrixPrediction(
            victim_slowdown=all_of[at].astype(np.float32),
            neighbour_slowdown=all_of.T[at].astype(np.float32),
            feasible=(self.fits[at] >= MISFIT_RISK).astype(np.uint8),
            feasibility=self.fits[at],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is known and what is true on one device type."""

    truth: Tables
    model: Tables
    served: Tables
    certain: Tables


@pytest.mark.timeout(900)
@pytest.mark.parametrize("hidden", [0, 1, 2])
def test_fewest_pairs_past_the_cap(hidden: int) -> None:
    """Limits hold for the first hidden set as served, and for each where a measurement is believed."""
    got = import_gavel(public("gavel/oracle_throughputs.json"))
    table = Table(name="gavel", jobs=attach_static(got.jobs).jobs, pairs=got.pairs)
    figures: dict[str, float] = {}
    for kind, world in worlds(table, hidden).items():
        shares = judged(kind, table, world)
        figures |= {f"{kind} {name} {what}": value for name, one in shares.items() for what, value in one.items()}
        for name, one in shares.items():
            print(f"{kind} {name:22}", *(f"{what} {value:.3f}" for what, value in one.items()))
    record(f"caps-gavel hidden set {hidden}", figures)
    judge = "measured certain" if hidden else "served"
    reached = {kind: figures[f"{kind} {judge} past"] for kind in LIMITS}
    missed = {kind: share for kind, share in reached.items() if share > LIMITS[kind]}
    assert not missed, f"share of pairs past {CAP}: {missed}, at most {LIMITS}"
    for kind in LIMITS:
        assert figures[f"{kind} served past"] < figures[f"{kind} least slowdown past"] < figures[f"{kind} random past"]


def worlds(table: Table, seed: int) -> dict[str, World]:
    """By device type, with one ensemble that never saw `HIDDEN` of the unordered pairs."""
    pairs = sorted({unordered_pair(row.victim, row.neighbour) for row in table.pairs})
    places = np.random.default_rng(seed).permutation(len(pairs))[: round(HIDDEN * len(pairs))]
    hidden = frozenset(pairs[k] for k in places)
    seen = Table(
        name=table.name,
        jobs=table.jobs,
        pairs=tuple(row for row in table.pairs if unordered_pair(row.victim, row.neighbour) not in hidden),
    )
    everything, known = (
        feasibility_rows([table], FeatureEncoder(), metric=METRIC),
        build_dataset([seen], FeatureEncoder()),
    )
    fitted = EnsembleModel().fit(known, SEED)
    intervals = calibrate_intervals(known, evaluate_models(known, [EnsembleModel()], splits=("pair",), seed=SEED))
    feasibility = fit_feasibility(feasibility_rows([seen], FeatureEncoder(), metric=METRIC))
    assert feasibility is not None
    dataset, counts = everything.dataset, partner_counts(known)
    rows = dataset.rows
    log_median, novelty = fitted.predict(rows), fitted.novelty(rows)
    partners = np.minimum(counts[rows.domain, rows.victim], counts[rows.domain, rows.neighbour])
    fits = feasibility.probability(everything.memory_sum, rows.victim, rows.neighbour)
    found = {}
    for k, domain in enumerate(dataset.domains):
        at = dataset.domain == k

        def square(values: Floats, at: NDArray[np.bool_] = at) -> Floats:
            filled = np.zeros((len(dataset.workloads),) * 2)
            filled[rows.victim[at] - 1, rows.neighbour[at] - 1] = values[at]
            return filled

        def shift(level: float, square: Callable[[Floats], Floats] = square) -> Floats:
            return square(intervals.quantile(level, novelty=novelty, partners=partners, domain=rows.domain))

        model = Tables(names=dataset.workloads, log_slowdown=square(log_median), shift=shift, fits=square(fits))
        truth = Tables(
            names=dataset.workloads,
            log_slowdown=square(np.nan_to_num(dataset.log_slowdown)),
            shift=lambda _: np.zeros((len(dataset.workloads),) * 2),
            fits=square(everything.feasible.astype(np.float64)),
        )
        found[domain.device_type] = World(
            truth=truth,
            model=model,
            served=served(model, seen, domain.device_type, once=0.0),
            certain=served(model, seen, domain.device_type, once=1e-6),
        )
    return found


def served(model: Tables, seen: Table, kind: str, *, once: float) -> Tables:
    """As the server answers: every seen pair by its measurement, which may be off by the share `once`; 0 means that
    nobody knows, and the model's interval stands in."""
    rows = {
        PairKey(row.victim, row.neighbour, kind, row.mode): MeasuredSlowdown(
            slowdown=row.slowdown, lower=row.slowdown * (1 - once), upper=row.slowdown * (1 + once)
        )
        for row in seen.pairs
        if row.device_type == kind and row.status is PairStatus.OK
    }
    mode = next(iter(rows)).mode
    predictor = MeasuredPredictor(model, rows)
    jobs = tuple(JobProfile(workload=name, device_type=kind, step_time_s=1.0) for name in model.names)
    batch = MatrixBatch(victims=jobs, neighbours=jobs, device_type=kind, mode=mode)

    @functools.cache
    def log_at(level: float) -> Floats:
        return np.log(predictor.predict_matrix(batch, quantile=level).victim_slowdown, dtype=np.float64)

    return Tables(
        names=model.names, log_slowdown=log_at(0.5), shift=lambda level: log_at(level) - log_at(0.5), fits=model.fits
    )


def believed(tables: Tables) -> Tables:
    """The same medians, believed."""
    return replace(tables, shift=lambda _: np.zeros_like(tables.log_slowdown))


def judged(kind: str, table: Table, world: World) -> dict[str, dict[str, float]]:
    """Of each way to decide: share of pairs truly past the cap, mean true slowdown of those that fit, pairs a draw."""
    profiles = {job.workload: job for job in table.jobs if job.device_type == kind}
    devices = tuple(
        Device(id=f"d{k}", type=kind, memory_bytes=find_device_type(kind).memory_bytes) for k in range(JOBS // 2)
    )
    slowdown, fits = np.exp(world.truth.log_slowdown), world.truth.fits > 0
    fits &= fits.T
    past = (slowdown > CAP) | (slowdown.T > CAP) | ~fits
    names = world.truth.names
    ways = {
        "served": (world.served, FEWEST),
        "measured certain": (world.certain, FEWEST),
        "model": (world.model, FEWEST),
        "model by medians": (believed(world.model), FEWEST),
        "perfect": (world.truth, FEWEST),
        "least slowdown": (world.served, FEWEST[1:]),
    }
    chosen: dict[str, list[tuple[int, int]]] = {name: [] for name in (*ways, "random")}
    rng = np.random.default_rng(SEED)
    for _ in range(DRAWS):
        drawn = rng.permutation(len(names))[:JOBS]
        chosen["random"] += list(zip(drawn[::2].tolist(), drawn[1::2].tolist(), strict=True))
        for name, (predictor, terms) in ways.items():
            snapshot = Snapshot(
                pending=tuple(Job(id=str(k), workload=names[k]) for k in drawn.tolist()),
                devices=devices,
                limits=Limits.of(soft_cap=CAP, misfit_risk=MISFIT_RISK),
                objective_terms=terms,
            )
            found = plan(context(snapshot, predictor, lambda job, _: profiles.get(job.workload), "bench"))
            chosen[name] += [(int(pair.job_id), int(pair.partner_id)) for pair in found.pairs]
    figures = {}
    for name, pairs in chosen.items():
        i, j = np.array(pairs).T
        good = fits[i, j]
        figures[name] = {
            "past": float(past[i, j].mean()),
            "slowdown": float(np.concatenate([slowdown[i, j][good], slowdown[j, i][good]]).mean()),
            "pairs": len(pairs) / DRAWS,
        }
    return figures
