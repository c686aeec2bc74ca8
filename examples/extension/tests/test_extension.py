"""Everything that this package adds, under interfere's own conformance suites."""

import pytest
from interfere_example.engine import on_threads
from interfere_example.importer import import_lab
from interfere_example.objective import LONGEST_WAIT
from interfere_example.rule import ONE_TENANT

from interfere.sim.schedulers.records import preset
from interfere.store.store import open_store
from interfere.testing.distributions import DistributionLaws
from interfere.testing.engines import EngineLaws
from interfere.testing.importers import ImporterLaws
from interfere.testing.models import ModelLaws
from interfere.testing.objectives import ObjectiveLaws
from interfere.testing.rules import RuleLaws
from interfere.testing.schedulers import SchedulerLaws
from interfere.testing.stores import StoreLaws

RATES = "job,neighbour,device,iterations_per_s\nresnet,,a100,10.0\nbert,,a100,4.0\nresnet,bert,a100,8.0\n"


class TestDistribution(DistributionLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def name(cls):
        return "interfere-example"


class TestModels(ModelLaws):
    @pytest.fixture(scope="class", params=["example-forest", "victim-mean"])
    @classmethod
    def model(cls, request):
        return request.param


class TestImporter(ImporterLaws):
    @pytest.fixture
    def importer(self):
        return import_lab

    @pytest.fixture
    def source(self, tmp_path):
        (tmp_path / "rates.csv").write_text(RATES, encoding="utf-8")
        return tmp_path / "rates.csv"


class TestObjective(ObjectiveLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def objective(cls):
        return LONGEST_WAIT


class TestRule(RuleLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def rule(cls):
        return ONE_TENANT


class TestEngine(EngineLaws):
    @pytest.fixture
    def engine(self):
        return on_threads


class TestScheduler(SchedulerLaws):
    @pytest.fixture(scope="class")
    @classmethod
    def scheduler(cls):
        return preset("example-smallest")


class TestStore(StoreLaws):
    @pytest.fixture
    def open_store(self, tmp_path):
        opened = []

        def open_():
            opened.append(open_store(f"example-folder://{tmp_path}"))
            return opened[-1]

        yield open_
        for store in opened:
            store.close()
