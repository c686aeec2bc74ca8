"""Beliefs of a fitted model never come from hidden pairs, and gaps of a truth are filled by predictions."""

import numpy as np

from interfere.data.tables import Table
from interfere.records import PairMeasurement, PairStatus
from interfere.sim.truth import truth_of
from interfere.training.study_models import fill_truth, fit_beliefs


def test_the_model_never_sees_hidden_pairs(small: Table) -> None:
    """Other slowdowns of the hidden pairs change no answer."""
    truth = truth_of(small)
    found = fit_beliefs(small, truth, hide=0.3, seed=0)
    assert 0 < found.error < 0.5
    pairs = tuple(
        type(p)(**{n: getattr(p, n) for n in p.__dataclass_fields__} | {"slowdown": 9.0, "lower": 8.0, "upper": 10.0})
        if tuple(sorted((p.victim, p.neighbour))) in found.hidden
        else p
        for p in small.pairs
    )
    other = fit_beliefs(Table(name=small.name, jobs=small.jobs, pairs=pairs), truth, hide=0.3, seed=0)
    assert other.hidden == found.hidden
    np.testing.assert_array_equal(other.predictor.slowdown, found.predictor.slowdown)
    victim, neighbour, *_ = found.measured[0]
    believed = found.predictor.slowdown[truth.index[victim], truth.index[neighbour]]
    assert believed == truth.table[truth.index[victim], truth.index[neighbour]]


def test_gaps_are_filled_by_a_model(small: Table) -> None:
    """Of every profiled workload; what was measured stays, who does not fit still does not."""
    first = small.jobs[0].workload
    misfit = next(p for p in small.pairs if first not in (p.victim, p.neighbour) and p.victim != p.neighbour)
    pair = (misfit.victim, misfit.neighbour)
    kept = [p for p in small.pairs if first not in (p.victim, p.neighbour) and (p.victim, p.neighbour) != pair]
    no = PairMeasurement(
        victim=pair[0],
        neighbour=pair[1],
        device_type=misfit.device_type,
        mode=misfit.mode,
        reason="too large",
        status=PairStatus.INFEASIBLE,
    )
    table = Table(name="part", jobs=small.jobs, pairs=(*kept, no))
    before = truth_of(table)
    after = fill_truth(table, before, seed=0)
    assert first not in before.workloads
    assert after.workloads == tuple(sorted(job.workload for job in small.jobs))
    inner = np.ix_(*[[after.index[name] for name in before.workloads]] * 2)
    np.testing.assert_array_equal(after.table[inner], before.table)
    assert after.filled == 2 * len(small.jobs) - 1
    assert np.isnan(after.table[after.index[pair[1]], after.index[pair[0]]])
    assert np.nanmin(after.table) >= 1
    assert np.isnan(after.table).sum() == 2
