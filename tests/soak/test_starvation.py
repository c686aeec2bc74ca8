"""A stream with jobs that share with none: no job waits twice as long as one after the other, at hardly any cost.

Four and eight devices at nine tenths of what they do without sharing; equal weights, the limits by default.
"""

import pytest

from interfere.records import Limits
from tests.policy.streams import Stream

JOBS = 800
MAX_WAIT, MAX_LOSS = 2.0, 0.02  # times the longest wait in order of submission; of the mean without ageing
STREAMS = tuple((devices, seed) for seed in range(4) for devices in (4, 8))


@pytest.mark.timeout(1800)
def test_ageing_bounds_the_longest_wait_and_keeps_the_mean() -> None:
    """No job of any stream waits too long, and no stream loses too much."""
    waits, losses = [], []
    for devices, seed in STREAMS:
        stream = Stream(seed, jobs=JOBS, devices=devices)
        in_order = stream.in_order()
        without, with_ageing = stream.decided(Limits.of(ageing_s=0.0)), stream.decided(Limits())
        waits.append(with_ageing.longest_s / in_order.longest_s)
        losses.append(with_ageing.mean_completion_s / without.mean_completion_s - 1)
        print(
            f"{devices} devices, seed {seed}: longest wait in order {in_order.longest_s:.0f} s, without ageing "
            f"{without.longest_s:.0f} s, with it {with_ageing.longest_s:.0f} s ({waits[-1]:.2f} ×), "
            f"mean {losses[-1]:+.2%}"
        )
    assert max(waits) <= MAX_WAIT
    assert max(losses) <= MAX_LOSS
