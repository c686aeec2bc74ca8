"""Every registered scheduler does what the suite demands, on worlds of every kind."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.sim.schedulers.records import PRESETS, Queue, SchedulerRecord, Sharing
from interfere.sim.world import World
from interfere.testing.schedulers import (
    SchedulerLaws,
    check_scheduler,
    deadlines,
    edge,
    gangs,
)

SEATED = (
    replace(PRESETS["fifo-matching"], seats=3),
    replace(PRESETS["sjf-easy-matching"], seats=4),
    SchedulerRecord(queue=Queue.POLICY, sharing=Sharing.MATCHING, one_gpu=True, seats=3),
)
TESTED = (*(record for record in PRESETS.values() if not record.one_gpu), *SEATED)


class TestSchedulers(SchedulerLaws):
    @pytest.fixture(scope="class", params=TESTED, ids=lambda record: record.label)
    @classmethod
    def scheduler(cls, request: pytest.FixtureRequest) -> SchedulerRecord:
        return request.param


def test_the_worlds_make_schedulers_do_everything() -> None:
    """On these worlds jobs share, are stopped, dropped and promised; else the suite would prove little."""

    def done(name: str, world: World) -> tuple[bool, bool, bool, bool]:
        replayed = check_scheduler(PRESETS[name], world)
        return (
            any(span.partner_id for span in replayed.spans),
            bool(replayed.stops.sum()),
            bool(np.isinf(replayed.ended_s).any()),
            bool(np.isfinite(replayed.promised_s).any()),
        )

    assert all(done("srtf-first-fit-greedy", gangs())[:2])
    for name in ("slots-greedy", "policy-deadlines"):
        assert all(done(name, deadlines())[k] for k in (0, 2, 3))
    assert done("fifo-first-fit", edge())[1]
