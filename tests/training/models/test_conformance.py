"""The quick models of the catalogue under the suite that models of other packages are held to."""

import pytest

from interfere.testing.models import ModelLaws


class TestOurModels(ModelLaws):
    @pytest.fixture(scope="class", params=["mean", "additive", "gbdt"])
    @classmethod
    def model(cls, request: pytest.FixtureRequest) -> str:
        return request.param
