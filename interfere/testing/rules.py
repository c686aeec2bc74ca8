"""The laws of every rule of another package: what decisions rely on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.custom import SharingRule, custom_rules
from interfere.policy.rules.group_rules import Bools
from interfere.policy.rules.text import render
from interfere.records import Device, Job

NAMES = st.text("abc/", min_size=1, max_size=3)
DEVICES = DeviceClass.of(Device(id="d", type="t", memory_bytes=16e9), 0.0)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Job, ...]:
    """Up to five jobs that send every field that a rule may read."""
    seconds = st.floats(1.0, 1e6)
    return tuple(
        Job(
            id=f"{draw(NAMES)}{k}",
            workload=draw(NAMES),
            weight=draw(st.floats(1e-3, 1e3)),
            priority=draw(st.integers(0, 4)),
            remaining_s=draw(seconds),
            attained_s=draw(seconds),
            elapsed_s=draw(seconds),
            memory_peak_bytes=draw(st.floats(1e6, 1e11)),
            latency_target_s=draw(seconds),
            pools=draw(st.sampled_from([(), ("p",), ("p", "q")])),
        )
        for k in range(draw(st.integers(1, 5)))
    )


class RuleLaws:
    """Every test gets `rule`."""

    @pytest.fixture(scope="class")
    @classmethod
    def rule(cls) -> SharingRule:
        """Override: the rule."""
        raise NotImplementedError

    def forbidden(
        self, rule: SharingRule, queue: tuple[Job, ...], partners: tuple[Job, ...], *, running: bool
    ) -> Bools:
        """bool[r, c]: which pairs the rule forbids at slowdowns that grow with the lengths of names."""
        own = np.array([[1.0 + len(job.id) + 2 * len(other.id) for other in partners] for job in queue])
        back = np.array([[1.0 + len(other.id) + 2 * len(job.id) for other in partners] for job in queue])
        (found,) = custom_rules((rule,), queue, partners, DEVICES, (own, back), running=running)
        for i, j in zip(*np.nonzero(found.mask), strict=True):
            assert render(found.rule(int(i), int(j))) == f"{rule.name}: {rule.because}"
        return found.mask

    def test_it_says_why_in_one_clause(self, rule: SharingRule) -> None:
        assert 0 < len(rule.because) <= 200
        assert rule.because.isprintable()

    @given(queue=jobs(), hosts=jobs())
    @settings(max_examples=30, deadline=None)
    def test_it_answers_one_truth_value_a_pair(
        self, rule: SharingRule, queue: tuple[Job, ...], hosts: tuple[Job, ...]
    ) -> None:
        for partners, running in ((queue, False), (hosts, True)):
            mask = self.forbidden(rule, queue, partners, running=running)
            assert mask.shape == (len(queue), len(partners))
            assert (mask == self.forbidden(rule, queue, partners, running=running)).all()

    @given(queue=jobs(), data=st.data())
    @settings(max_examples=30, deadline=None)
    def test_a_pair_is_judged_by_its_two_jobs_alone(
        self, rule: SharingRule, queue: tuple[Job, ...], data: st.DataObject
    ) -> None:
        """Permuting jobs permutes the pairs; leaving some out changes no other."""
        order = data.draw(st.permutations(range(len(queue))))[: data.draw(st.integers(1, len(queue)))]
        chosen = tuple(queue[k] for k in order)
        whole = self.forbidden(rule, queue, queue, running=False)
        assert (self.forbidden(rule, chosen, chosen, running=False) == whole[np.ix_(order, order)]).all()
