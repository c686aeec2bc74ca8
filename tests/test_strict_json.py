"""What strict JSON cannot hold is turned into what it can."""

import doctest
import json
import math

import numpy as np

from interfere import strict_json
from interfere.strict_json import json_value


def test_the_example_runs() -> None:
    assert doctest.testmod(strict_json).failed == 0


def test_every_depth_is_converted() -> None:
    value = {1: (np.float32(0.5), math.inf), "b": {"c": [np.int64(3), frozenset({"x"})]}, "nan": np.float64("nan")}
    text = json.dumps(json_value(value), allow_nan=False)
    assert json.loads(text) == {"1": [0.5, None], "b": {"c": [3, ["x"]]}, "nan": None}
