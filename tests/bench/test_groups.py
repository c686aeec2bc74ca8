"""How well slowdowns of three and more jobs are predicted, by the code that the server and `advise-copies` call.

ParvaGPU: three to five copies, whole models held out; of a held-out model its steps with one copy, in every slice, are
known, and as the server composes groups the pair of two copies as well; as `advise-copies` answers, nothing else. The
shipped table `cpu-groups`: groups of three and four jobs and their pairs on one CPU core, whole jobs held out, of which
their profiles alone are known.
"""

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from interfere.data.importers.parvagpu import import_parvagpu
from interfere.data.loading import shipped_table
from interfere.data.tables import Table, read_table
from interfere.features.pair import FeatureEncoder
from interfere.predict.copies.advice import CopiesModel
from interfere.predict.copies.measurements import read_measurements
from interfere.predict.groups import DEFAULT_COMPOSITION, GroupComposition
from interfere.training.dataset import build_dataset
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.groups.evaluation import fit_domain_compositions
from interfere.training.groups.fit import (
    GroupCases,
    calibrate,
    covered,
    fit_composition,
    group_cases,
    measured_groups,
    measured_pairs,
)
from interfere.training.models.catalogue import MODELS
from tests.data.importers.public_files import public

pytestmark = pytest.mark.bench
Floats = NDArray[np.float64]
SIZES = (3, 4, 5)
MAX_ERROR = (5.0, 8.0, 12.0)  # % at three, four and five copies
COVERAGE = (0.85, 0.95)
MAX_MAE_OF_PAIRS = 1.3  # MAE of speed of groups ÷ that of pairs on the same split
Z90 = 1.645  # standard deviations from the median to either end of a 90 % interval
CHAMPION = "ensemble"  # of the shipped model


def test_copies_of_held_out_models() -> None:
    table = parvagpu_table()
    cases = group_cases(measured_groups([table]), [table], measured_pairs(build_dataset([table], FeatureEncoder())))
    family = {job.workload: job.family for job in table.jobs}
    model = np.array([family[next(iter(members))] for members in cases.members])
    size = cases.neighbours + 1
    served, coverages = held_out(cases, model)
    candidates: Mapping[str, Floats] = {
        "product": cases.product,
        "sum 1 + Σ(s - 1)": 1 + cases.excess,
        "capacity n·s/2": np.maximum(1.0, size * (1 + cases.excess / cases.neighbours) / 2),
        "growing sum, no slices known": DEFAULT_COMPOSITION.slowdown(cases.excess, cases.neighbours),
        "served, default parameters": cases.predicted(DEFAULT_COMPOSITION),
        "served, fitted to other models": served,
    }
    print()
    errors = {
        name: [100 * float(np.abs(predicted / cases.slowdown - 1)[size == n].mean()) for n in SIZES]
        for name, predicted in candidates.items()
    }
    for name, each in errors.items():
        print(f"{name:36}" + "".join(f"{error:7.1f} %" for error in each))
    print(f"{'  coverage':36}" + "".join(f"{100 * coverages[size == n].mean():7.1f} %" for n in SIZES))
    without, inside = from_one_copy_alone()
    print(f"{'from rows of one copy alone':36}" + "".join(f"{error:7.1f} %" for error in without))
    print(f"{'  coverage':36}{100 * np.mean(inside):7.1f} %")
    for name in ("served, default parameters", "served, fitted to other models"):
        assert all(error <= limit for error, limit in zip(errors[name], MAX_ERROR, strict=True))
    assert all(error <= limit for error, limit in zip(without, MAX_ERROR, strict=True))
    assert COVERAGE[0] <= coverages.mean() <= COVERAGE[1]
    assert COVERAGE[0] <= np.mean(inside) <= COVERAGE[1]
    fitted = fit_composition(cases)
    assert fitted.share_weight == pytest.approx(DEFAULT_COMPOSITION.share_weight, abs=0.1)


def test_groups_of_jobs_never_seen() -> None:
    table = read_table(shipped_table("cpu-groups"))
    dataset = build_dataset([table], FeatureEncoder())
    (job_split,) = evaluate_models(dataset, [MODELS[CHAMPION]], splits=("job",))
    of_pairs = job_split.scores.mae
    print(f"\npairs of jobs never seen: MAE of speed {of_pairs:.4f}")
    for domain in fit_domain_compositions(dataset, [table], job_split):
        print(domain.device_type, domain.mode, domain.composition)
        for score in domain.scores:
            print(
                f"  {score.size or 'all'} jobs, {score.cases} cases: MAE {score.mae:.4f}, sum {score.mae_sum:.4f}, "
                f"product {score.mae_product:.4f}, known pairs {score.mae_known_pairs:.4f}, "
                f"coverage {score.coverage:.3f}"
            )
            assert score.mae <= MAX_MAE_OF_PAIRS * of_pairs
        assert COVERAGE[0] <= domain.scores[-1].coverage <= COVERAGE[1]


def parvagpu_table() -> Table:
    """The published files as the importer reads them."""
    imported = import_parvagpu(public("parvagpu"))
    return Table(name="parvagpu", jobs=imported.jobs, pairs=imported.pairs, groups=imported.groups)


def held_out(cases: GroupCases, model: NDArray[np.str_]) -> tuple[Floats, NDArray[np.bool_]]:
    """(prediction, inside its interval) of the cases of each model by what was fitted and calibrated on all others."""
    predicted, inside = np.full(len(cases), np.nan), np.zeros(len(cases), dtype=bool)
    fitted: dict[str, GroupComposition] = {name: fit_composition(cases.take(model != name)) for name in set(model)}
    for name, composition in fitted.items():
        predicted[model == name] = cases.take(model == name).predicted(composition)
    for name, composition in fitted.items():
        others = model != name
        told = calibrate(composition, cases.take(others), predicted[others], with_pairs=None)
        inside[~others] = covered(cases.take(~others), predicted[~others], told)
    return predicted, inside


def from_one_copy_alone() -> tuple[list[float], list[bool]]:
    """Error in % at three, four and five copies of held-out models of which the rows of one copy are known, nothing of
    two: what `advise-copies` believes; and whether each slowdown lies in its 90 % interval."""
    models = read_measurements(public("parvagpu"))
    errors: dict[int, list[float]] = {n: [] for n in SIZES}
    inside = []
    for model in models:
        copies, alone = CopiesModel([other for other in models if other is not model]), model.of_one_copy()
        for batch in sorted({batch for _, batch in alone.one_copy_latencies_s()}):
            belief = copies.belief(alone, batch)
            for k, key in enumerate(belief.configurations):
                latency_s = model.latency_s(key)
                if key.copies in SIZES and np.isfinite(latency_s):
                    log_error = belief.mean[k] - np.log(latency_s)
                    errors[key.copies].append(abs(float(np.expm1(log_error))))
                    inside.append(bool(abs(log_error) <= Z90 * np.sqrt(belief.covariance[k, k])))
    return [100 * float(np.mean(errors[n])) for n in SIZES], inside
