"""The laws of every objective: what the solver relies on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.policy.costs.objectives import Objective
from interfere.policy.validate import validate_snapshot
from interfere.records import Device, Job, Limits, Snapshot

MAX_STRETCH = 100.0


@st.composite
def jobs(draw: st.DrawFn, min_size: int = 0) -> tuple[Job, ...]:
    """Jobs that send every field that some objective needs."""
    seconds = st.floats(0.0, 1e6)
    return tuple(
        Job(
            id=f"j{k}",
            workload="w",
            weight=draw(st.floats(1e-3, 1e3)),
            priority=draw(st.integers(0, 4)),
            remaining_s=draw(st.floats(1.0, 1e6)),
            attained_s=draw(seconds),
            elapsed_s=draw(seconds),
        )
        for k in range(draw(st.integers(min_size, 6)))
    )


class ObjectiveLaws:
    """Every test gets `objective`."""

    @pytest.fixture(scope="class")
    @classmethod
    def objective(cls) -> Objective:
        """Override: the objective."""
        raise NotImplementedError

    @given(queue=jobs())
    @settings(max_examples=30, deadline=None)
    def test_coefficients_are_one_finite_float64_a_job(self, objective: Objective, queue: tuple[Job, ...]) -> None:
        for coefficient in (objective.constant(queue), objective.rate(queue)):
            assert coefficient.shape == (len(queue),)
            assert coefficient.dtype == np.float64
            assert np.isfinite(coefficient).all()

    @given(queue=jobs(min_size=1), stretches=st.tuples(*[st.floats(1.0, MAX_STRETCH)] * 2))
    @settings(max_examples=30, deadline=None)
    def test_a_jobs_cost_never_falls_as_its_slowdown_rises(
        self, objective: Objective, queue: tuple[Job, ...], stretches: tuple[float, float]
    ) -> None:
        constant, rate = objective.constant(queue), objective.rate(queue)
        assert (rate >= 0).all()
        assert (constant + rate * min(stretches) <= constant + rate * max(stretches)).all()

    def test_events_are_never_rewarded(self, objective: Objective) -> None:
        assert objective.soft_cap_price >= 0
        assert objective.deadline_miss_price >= 0
        assert objective.occupancy_price(2.0, 300.0) >= 0

    @given(queue=jobs(), data=st.data())
    @settings(max_examples=30, deadline=None)
    def test_a_jobs_coefficients_depend_on_that_job_alone(
        self, objective: Objective, queue: tuple[Job, ...], data: st.DataObject
    ) -> None:
        """Permuting jobs permutes coefficients; leaving some out changes no other."""
        order = data.draw(st.permutations(range(len(queue))))[: data.draw(st.integers(0, len(queue)))]
        chosen = [queue[k] for k in order]
        for coefficient in (objective.constant, objective.rate):
            assert coefficient(chosen).tolist() == coefficient(queue)[np.array(order, dtype=np.int64)].tolist()

    def test_required_fields_are_fields_of_a_job_and_missing_ones_are_refused(self, objective: Objective) -> None:
        assert set(objective.required_fields) <= set(Job.__dataclass_fields__)
        snapshot = Snapshot(
            pending=(Job(id="j", workload="w"),),
            devices=(Device(id="d", type="t", price_per_hour=2.0, power_w=300.0),),
            limits=Limits.of(soft_cap=2.0),
        )
        fields = [violation.field for violation in validate_snapshot(snapshot, objective)]
        assert fields == [f"pending[0].{field}" for field in objective.required_fields]
