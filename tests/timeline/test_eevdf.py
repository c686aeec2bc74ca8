"""Linux's EEVDF on one core: examples by hand, and slowdowns measured on a core."""

import math

import numpy as np
import pytest

from interfere.data.loading import shipped_table
from interfere.data.tables import read_table
from interfere.errors import InvalidInputError
from interfere.timeline.kernel_schedulers import EevdfScheduler
from interfere.timeline.replay_engine import replay
from interfere.timeline.streams import KernelStream, ReplayResult
from interfere.timeline.timelines import Timeline
from tests.timeline.examples import line, replayed_slowdowns

MS_US = 1e3


def together(one: Timeline, other: Timeline, until_s: float) -> ReplayResult:
    streams = (KernelStream(timeline=one, rounds=None), KernelStream(timeline=other, rounds=None))
    return replay(streams, EevdfScheduler(slice_s=0.0014), until_s=until_s, record_spans_until_s=math.inf)


def test_two_busy_processes_alternate_at_the_end_of_each_slice() -> None:
    busy = line("busy", (1_000 * MS_US, 0))
    got = together(busy, busy, 0.014)
    assert [(span.stream, round(span.start_s * 1e3, 3)) for span in got.spans] == [
        (k % 2, round(1.4 * k, 3)) for k in range(10)
    ]


@pytest.mark.parametrize(("pause_ms", "measured"), [(2.1, 1.57), (3.1, 1.46)])
def test_two_bursty_processes_are_slowed_as_measured_on_linux(pause_ms: float, measured: float) -> None:
    """On Linux 6.18 with two cores: processes that only spin, 3 ms of processor time, then sleep 2 or 3 ms."""
    one = line("spin", (3.0 * MS_US, pause_ms * MS_US))
    streams = (KernelStream(timeline=one, rounds=None), KernelStream(timeline=one, rounds=None, start_s=0.0003))
    got = replay(streams, EevdfScheduler(), until_s=1.5)
    assert [outcome.slowdown for outcome in got.outcomes] == [pytest.approx(measured, rel=0.02)] * 2


def test_a_mostly_sleeping_process_hardly_waits_for_a_busy_one() -> None:
    """It earns a claim while it waits for the end of a slice, and lives on it for many short visits."""
    got = together(line("light", (0.05 * MS_US, 0.6 * MS_US)), line("busy", (1_000 * MS_US, 0)), 2.0)
    assert 1.0 < got.outcomes[0].slowdown < 1.2


def test_a_newly_picked_process_is_protected_from_one_that_wakes_up() -> None:
    """So a light job waits for short bursts, where it does not wait for an endless one (as measured)."""
    light, bursty = line("light", (0.05 * MS_US, 0.6 * MS_US)), line("bursty", (0.7 * MS_US, 1.1 * MS_US))
    beside_bursts = together(light, bursty, 2.0).outcomes[0].slowdown
    beside_busy = together(light, line("busy", (1_000 * MS_US, 0)), 2.0).outcomes[0].slowdown
    assert beside_bursts > beside_busy + 0.2


def test_the_running_process_keeps_the_core_until_its_slice_is_over() -> None:
    """At 2 ms the sleeper is back with the same deadline, 1.4 ms of virtual time, of which the other has run 1."""
    got = together(line("sleeper", (1.0 * MS_US, 1.0 * MS_US)), line("busy", (1_000 * MS_US, 0)), 0.006)
    assert [(span.stream, round(span.start_s * 1e3, 3)) for span in got.spans][:3] == [(0, 0.0), (1, 1.0), (0, 2.4)]


def test_a_negative_lag_is_paid_while_the_process_sleeps() -> None:
    """It had 1.3 ms before the other had any; 10 ms later nobody remembers, and it runs as soon as it wakes up."""
    debtor = line("debtor", (1.3 * MS_US, 10.0 * MS_US), (1.0 * MS_US, 0))
    got = together(debtor, line("busy", (1_000 * MS_US, 0)), 0.012)
    assert [round(span.start_s * 1e3, 3) for span in got.spans if span.stream == 0] == [0.0, 11.3]


def test_three_share_evenly() -> None:
    streams = [KernelStream(timeline=line("busy", (1_000 * MS_US, 0)), rounds=None)] * 3
    got = replay(streams, EevdfScheduler(), until_s=1.2)
    assert [one.slowdown for one in got.outcomes] == [pytest.approx(3.0, rel=0.02)] * 3


def test_an_invalid_slice_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="slice_s"):
        EevdfScheduler(slice_s=0.0)


def test_measured_slowdowns_of_a_core_from_timelines_alone() -> None:
    """Every third job of the shipped table; all of it in the bench."""
    table = read_table(shipped_table())
    jobs = table.jobs[::3]
    expected = replayed_slowdowns(jobs, EevdfScheduler(), until_s=1.0)
    found = [
        (expected[i, k], pair.slowdown)
        for pair in table.ok_pairs
        for i, one in enumerate(jobs)
        for k, other in enumerate(jobs)
        if (pair.victim, pair.neighbour) == (one.workload, other.workload)
    ]
    replayed, measured = np.log(np.array(found)).T
    assert len(found) == len(jobs) ** 2
    assert np.abs(replayed - measured).mean() < 0.8 * np.abs(measured - measured.mean()).mean()
    assert np.corrcoef(replayed, measured)[0, 1] > 0.8
