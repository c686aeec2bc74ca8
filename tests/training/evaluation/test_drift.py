"""Drift of jobs and pairs, on worlds with a known change."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from interfere.data.tables import Table
from interfere.features.pair import FeatureEncoder
from interfere.strict_json import json_value
from interfere.training.evaluation.drift import TOLERANCE, Expectation, measure_drift
from tests.training.worlds import additive, world


def observed(table: Table, factors: dict[tuple[str, str], float], *, rows: int = 8) -> Table:
    """The first rows of a table, some of them slower by a factor."""
    pairs = [
        replace(p, slowdown=p.slowdown * f, lower=p.lower * f, upper=p.upper * f, source="observed")
        for p in table.pairs[:rows]
        for f in [factors.get((p.victim, p.neighbour), 1.0)]
    ]
    return Table(name="observed", jobs=table.jobs, pairs=tuple(pairs))


def test_an_unchanged_world_does_not_drift(encoder: FeatureEncoder) -> None:
    base = world(additive)
    drift = measure_drift([base], observed(base, {}), encoder, None)
    assert (len(drift.pairs), drift.unexpected, drift.bias) == (8, 0, 0.0)
    assert not any(p.drifted for p in drift.pairs)
    assert not any(c.drifted for c in drift.columns)
    assert drift.markdown().startswith("drift: 0 of 8 observed pairs")


def test_the_pair_that_drifted_most_comes_first_with_both_figures(encoder: FeatureEncoder) -> None:
    base = world(additive)
    drift = measure_drift([base], observed(base, {("w0", "w3"): 1.5, ("w0", "w2"): 1.05}), encoder, None)
    first = drift.pairs[0]
    assert (first.victim, first.neighbour, first.source, first.drifted) == ("w0", "w3", Expectation.MEASURED, True)
    assert first.observed == pytest.approx(1.5 * first.expected)
    assert not drift.pairs[1].drifted  # 5 % is less than models miss by
    assert f"w0 beside w3 on cpu-core, timeslice: observed {first.observed:.3f} ×" in drift.markdown()
    assert json.loads(json.dumps(json_value(asdict(drift))))["pairs"][0]["victim"] == "w0"


def test_a_pair_whose_interval_includes_the_expectation_has_not_drifted(encoder: FeatureEncoder) -> None:
    base = world(additive)
    moved = observed(base, {("w0", "w3"): math.exp(2 * TOLERANCE)})
    unsure = replace(moved, pairs=tuple(replace(p, lower=0.5, upper=9.0) for p in moved.pairs))
    assert not any(p.drifted for p in measure_drift([base], unsure, encoder, None).pairs)


def test_pairs_without_an_expectation_are_counted(encoder: FeatureEncoder) -> None:
    base = world(additive)
    known = replace(base, pairs=base.pairs[6:])
    drift = measure_drift([known], observed(base, {}), encoder, None)
    assert (len(drift.pairs), drift.unexpected) == (2, 6)


def test_jobs_with_other_features_show_in_their_columns(encoder: FeatureEncoder) -> None:
    base = world(lambda i, j: 1.2, count=12)
    slower = tuple(replace(job, step_time_s=job.step_time_s * 1e3) for job in base.jobs)
    moved = measure_drift([base], replace(observed(base, {}), jobs=slower), encoder, None)
    names = [c.column for c in moved.columns if c.drifted]
    assert "log_step_time_s" in names
    assert names == [c.column for c in moved.columns[: len(names)]]  # the likeliest first
    assert np.all(np.diff([c.p_value for c in moved.columns]) >= 0)
