"""The two baselines without fitted parameters, against hand-computed values."""

from dataclasses import replace

import numpy as np
import pytest

from tests.training.baselines.stated_datasets import named, row_of, stated
from tests.training.worlds import world


def test_measured_pairs_have_their_speed_and_all_others_095() -> None:
    made = stated([world(lambda i, j: 1.5 + i, 3), world(lambda i, j: 3.0 + i, 3, mode="mps")])
    seen = made.take(made.group % 2 == 0)
    expected = np.where(made.group % 2 == 0, np.exp(made.log_slowdown), 1 / 0.95)
    assert np.exp(named("eva-default").fit(seen, 0).predict(made.rows)) == pytest.approx(expected)


def test_the_roofline_is_read_where_it_is_known() -> None:
    made = stated([world(lambda i, j: 2.0, 3)])
    made.rows.pairs[row_of(made, 0, 1), made.pair_columns.index("roofline_log_slowdown")] = 0.3
    fitted = named("roofline").fit(made, 0)
    predicted = fitted.predict(made.rows)
    assert predicted[row_of(made, 0, 1)] == pytest.approx(0.3)
    assert np.exp(np.delete(predicted, row_of(made, 0, 1))) == pytest.approx(np.full(8, 2.0))
    assert fitted.has_inputs(replace(made.rows)).sum() == 1
