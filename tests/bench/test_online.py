"""How fast the online correction learns new jobs of the user's copy of the public data, beside simpler ways."""

from pathlib import Path

import pytest

from interfere.data.importers.gavel import import_gavel
from interfere.data.importers.lucid import import_lucid
from interfere.data.tables import Table
from interfere.features.pair import FeatureEncoder
from interfere.profiling.static.profiles import attach_static
from interfere.training.dataset import build_dataset
from interfere.training.evaluation.cross_validation import evaluate_models
from interfere.training.models.catalogue import MODELS
from tests.bench.history import record
from tests.data.importers.public_files import public
from tests.predict.online.streaming import (
    SIMPLE,
    STEPS,
    WINDOW_STEPS,
    Residual,
    Simple,
    coverage,
    curve,
    neighbour_bound,
    priors,
    streams,
)

pytestmark = pytest.mark.bench
ORDERS = 3  # of partners, averaged
# Own-speed MAE after 0, 1, 4, 8 observed pairs that must hold.
LIMITS = {"gavel": {0: 0.054, 1: 0.034, 4: 0.030, 8: 0.026}, "lucid": {0: 0.057, 1: 0.050, 4: 0.045, 8: 0.042}}
# Error of others' speed after 8 pairs ÷ that after 0. On Lucid a constant and a slope of each new neighbour, fitted to
# all pairs that are asked, leave .88: what a model knows there of unseen neighbours, windows hardly improve. Retraining
# with four fifths of all pairs has an error of .033 there, which is .90 of that after 0 pairs.
MAX_OTHERS_RATIO = {"gavel": 0.75, "lucid": 0.97}
MIN_COVERAGE, MAX_COVERAGE = 0.85, 0.95  # of 90 % intervals
MODEL = "ensemble"  # the champion on both tables


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["gavel", "lucid"])
def test_new_jobs_are_learned(name: str) -> None:
    table = _table(name)
    dataset = build_dataset([table], FeatureEncoder())
    model = MODELS[MODEL]
    unseen, seen = evaluate_models(dataset, [model], splits=("job", "pair"))
    found = list(streams(dataset, unseen, orders=ORDERS))
    prior = priors(dataset, unseen, seen)
    domains = [(where.device_type, where.mode) for where in dataset.domains]
    curves = {
        "residual": curve(found, lambda stream, d: Residual(stream, prior[stream.fold], domains[d])),
        **{kind: curve(found, lambda stream, _, kind=kind: Simple(stream, kind)) for kind in SIMPLE},
    }
    figures: dict[str, float] = {"streams": len(found) // ORDERS}
    for kind, one in curves.items():
        for k in STEPS:
            figures[f"{kind} own {k}"] = one.own_mae(k)
            figures[f"{kind} neighbours {k}"] = one.neighbour_mae(k)
        print(f"{name:6} {kind:14}", *(f"{k}: {one.own_mae(k):.4f}/{one.neighbour_mae(k):.4f}" for k in STEPS))
    # 2. Others' error beside the least that any constant and slope of the new neighbours could reach.
    residual = curves["residual"]
    figures["bound of neighbours"] = neighbour_bound(found)
    ratio = residual.neighbour_mae(STEPS[-1]) / residual.neighbour_mae(0)
    bound = figures["bound of neighbours"] / residual.neighbour_mae(0)
    print(
        f"{name:6} others' error after {STEPS[-1]} pairs: {ratio:.2f} of that after 0; fitted to all pairs {bound:.2f}"
    )
    # 3. Coverage of the intervals.
    covered = coverage(found, lambda stream, d: Residual(stream, prior[stream.fold], domains[d]))
    for side in ("own", "others"):
        print(f"{name:6} coverage, {side:6}", *(f"{k}: {covered[side, k]:.3f}" for k in WINDOW_STEPS))
    figures |= {f"coverage {side} {k}": share for (side, k), share in covered.items()}
    record(f"online-{name}", figures)
    assert ratio <= MAX_OTHERS_RATIO[name]
    assert all(MIN_COVERAGE <= share <= MAX_COVERAGE for share in covered.values()), covered
    slack = residual.neighbour_se(0, ORDERS)
    assert all(residual.neighbour_mae(k) <= residual.neighbour_mae(0) + slack for k in STEPS)
    for simple in ("no update", "pair memory", "unshrunk mean"):
        assert all(residual.own_mae(k) < curves[simple].own_mae(k) for k in STEPS if k), simple
    missed = {
        k: (round(residual.own_mae(k), 4), limit) for k, limit in LIMITS[name].items() if residual.own_mae(k) > limit
    }
    assert not missed, f"own-speed MAE above its limit after k pairs: {missed}"


def _table(name: str) -> Table:
    got = (
        import_gavel(public("gavel/oracle_throughputs.json"))
        if name == "gavel"
        else import_lucid(public(Path("lucid")))
    )
    return Table(name=name, jobs=attach_static(got.jobs).jobs, pairs=got.pairs)  # as `interfere data import` does
