"""Conformance suites: what every store, predictor, objective, rule, engine, model, importer or scheduler must do.

A suite is a class of tests. A package that adds an implementation subclasses it in its own tests, and overrides the one
fixture that gives the implementation; interfere's own are held to the same suites:

    from interfere.testing.objectives import ObjectiveLaws

    class TestMine(ObjectiveLaws):
        @pytest.fixture(scope="class")
        @classmethod
        def objective(cls):
            return MINE

Needs pytest and hypothesis: the extra `testing`. `examples/extension` is a package that uses every suite.
"""

import pytest

SUITES = (
    "distributions",
    "engines",
    "importers",
    "models",
    "objectives",
    "predictors",
    "rules",
    "schedulers",
    "stores",
)
pytest.register_assert_rewrite(*(f"{__name__}.{suite}" for suite in SUITES))  # failures show what was compared
