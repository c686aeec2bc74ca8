"""Jobs of a family that training never saw, after 0 to 3 probes: chosen ones, random ones, and the same for all jobs.

The partners are chosen without anything of the held-out family; what is asked are all other pairs with known jobs, both
directions. MAE of speed, coverage of the 90 % intervals in brackets.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from interfere.features.pair import FeatureEncoder
from interfere.predict.online.prior import ResidualPrior
from interfere.training.dataset import Dataset, build_dataset
from interfere.training.evaluation.candidates import FAMILY_GROUPS
from interfere.training.evaluation.cross_validation import Evaluation, evaluate_models
from interfere.training.evaluation.splits import Fold
from interfere.training.models.catalogue import MODELS
from interfere.training.publishing.residual_prior import fit_residual_prior, out_of_fold_errors
from tests.bench.history import record
from tests.bench.test_online import MODEL, _table
from tests.predict.online.streaming import Residual, Stream, streams, without_jobs

pytestmark = pytest.mark.bench
PROBES = 3
MAX_ERROR = {"gavel": (0.048, 0.042, 0.038)}  # after 1, 2, 3 chosen probes
MIN_COVERAGE, MAX_COVERAGE = 0.88, 0.96

Choose = Callable[[Stream, Residual, list[str]], list[str]]


def _chosen(_: Stream, corrector: Residual, partners: list[str]) -> list[str]:
    return corrector.chosen_probes(partners, PROBES)


def _random(stream: Stream, _: Residual, partners: list[str]) -> list[str]:
    return [name for name in stream.partners if name in partners][:PROBES]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["gavel", "lucid"])
def test_probes_of_jobs_of_unseen_families(name: str) -> None:
    dataset = build_dataset([_table(name)], FeatureEncoder())
    by_split = {
        each.split: each for each in evaluate_models(dataset, [MODELS[MODEL]], splits=("family", "job", "pair"))
    }
    (as_trained,) = evaluate_models(dataset, [MODELS[MODEL]], splits=("family",), count=FAMILY_GROUPS)
    priors = _priors(dataset, by_split | {"family": as_trained}, by_split["family"].parts)
    found = [
        (stream, domain)
        for stream, domain in streams(dataset, by_split["family"], orders=1)
        if len(_partners(stream, priors[stream.fold])) >= PROBES
    ]
    usual = _usual_partners(found, priors, dataset)
    ways: dict[str, Choose] = {
        "chosen": _chosen,
        "random": _random,
        "fixed": lambda stream, _, partners: [name for name in usual[stream.fold] if name in partners][:PROBES],
    }
    figures: dict[str, float] = {"streams": len(found)}
    for way, choose in ways.items():
        error, covered = _errors(found, priors, dataset, choose)
        print(f"{name:6} {way:7}", *(f"{k}: {error[k]:.4f} ({covered[k]:.3f})" for k in range(PROBES + 1)), sep="  ")
        figures |= {f"{way} {k}": error[k] for k in range(PROBES + 1)}
        figures |= {f"{way} coverage {k}": covered[k] for k in range(PROBES + 1)}
    record(f"probes-{name}", figures)
    for k, limit in enumerate(MAX_ERROR.get(name, ()), start=1):
        assert figures[f"chosen {k}"] <= limit
    assert all(MIN_COVERAGE <= figures[f"chosen coverage {k}"] <= MAX_COVERAGE for k in range(1, PROBES + 1))
    assert figures[f"chosen {PROBES}"] < figures[f"random {PROBES}"]


def _priors(dataset: Dataset, by_split: dict[str, Evaluation], parts: Sequence[Fold]) -> dict[int, ResidualPrior]:
    """By fold of one family each: fitted as training fits it, without any row of the fold's family."""
    errors = {split: out_of_fold_errors(dataset, each) for split, each in by_split.items()}
    found = {}
    for fold, part in enumerate(parts):
        new = _new_jobs(dataset, part.train)
        kept = {split: without_jobs(each, new) for split, each in errors.items()}
        found[fold] = fit_residual_prior(dataset.take(part.train), kept["job"], kept["pair"], kept["family"])
    return found


def _new_jobs(dataset: Dataset, train: np.ndarray) -> np.ndarray:
    seen = np.concatenate([dataset.rows.victim[train], dataset.rows.neighbour[train]])
    return np.setdiff1d(np.concatenate([dataset.rows.victim, dataset.rows.neighbour]), seen)


def _usual_partners(
    found: list[tuple[Stream, int]], priors: dict[int, ResidualPrior], dataset: Dataset
) -> dict[int, list[str]]:
    """By fold, the partners that are chosen most often for the jobs of all other folds."""
    votes: dict[int, dict[str, int]] = {}
    for stream, domain in found:
        corrector = _corrector(stream, priors, dataset, domain)
        for name in _chosen(stream, corrector, _partners(stream, priors[stream.fold])):
            of_fold = votes.setdefault(stream.fold, {})
            of_fold[name] = of_fold.get(name, 0) + 1
    usual = {}
    for fold in votes:
        total: dict[str, int] = {}
        for other in votes.keys() - {fold}:
            for name, count in votes[other].items():
                total[name] = total.get(name, 0) + count
        usual[fold] = sorted(total, key=lambda name: (-total[name], name))
    return usual


def _corrector(stream: Stream, priors: dict[int, ResidualPrior], dataset: Dataset, domain: int) -> Residual:
    place = dataset.domains[domain]
    families = dict(zip(dataset.workloads, dataset.families, strict=True))
    return Residual(stream, priors[stream.fold], (place.device_type, place.mode), families)


def _partners(stream: Stream, prior: ResidualPrior) -> list[str]:
    """Partners of the stream's job that training knows and that were measured in both directions."""
    known = {key[0] for key in prior.signatures}
    return sorted(
        name
        for name in known.intersection(stream.partners)
        if {(stream.job, name), (name, stream.job)} <= stream.measured.keys()
    )


def _errors(
    found: list[tuple[Stream, int]], priors: dict[int, ResidualPrior], dataset: Dataset, choose: Choose
) -> tuple[list[float], list[float]]:
    """MAE of speed and coverage over all pairs that were not measured, after 0 to `PROBES` probes."""
    sums = np.zeros((PROBES + 1, 3))  # errors, covered, pairs
    for stream, domain in found:
        corrector = _corrector(stream, priors, dataset, domain)
        partners = choose(stream, corrector, _partners(stream, priors[stream.fold]))
        asked = dict.fromkeys(stream.measured)
        for k in range(PROBES + 1):
            if k:
                for pair in ((stream.job, partners[k - 1]), (partners[k - 1], stream.job)):
                    if pair in asked:
                        corrector.observe(pair, stream.measured[pair])
                        del asked[pair]
            for pair in asked:
                answer, truth = corrector.answer(pair), float(np.exp(stream.measured[pair]))
                error = abs(min(1.0 / truth, 1.0) - min(1.0 / float(answer.median[0]), 1.0))
                sums[k] += error, answer.lower[0] <= truth <= answer.upper[0], 1
    return (sums[:, 0] / sums[:, 2]).tolist(), (sums[:, 1] / sums[:, 2]).tolist()
