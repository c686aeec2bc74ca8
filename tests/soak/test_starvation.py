"""A stream with jobs that share with none: no job waits twice as long as one after the other, at hardly any cost.

Four and eight devices at nine tenths of what they do without sharing; equal weights, nobody says how long jobs take.
"""

import pytest

from tests.policy.streams import Stream

JOBS = 800
MAX_WAIT, MAX_LOSS = 2.0, 0.02  # times the longest wait in order of submission; of the mean without promises
STREAMS = tuple((devices, seed) for seed in range(4) for devices in (4, 8))


@pytest.mark.timeout(1800)
def test_promised_ends_bound_the_longest_wait_and_keeps_the_mean() -> None:
    """No job of any stream waits too long, and no stream loses too much."""
    waits, losses = [], []
    for devices, seed in STREAMS:
        stream = Stream(seed, jobs=JOBS, devices=devices)
        in_order = stream.in_order()
        without, promised = stream.decided(promises=False), stream.decided(promises=True)
        waits.append(promised.longest_s / in_order.longest_s)
        losses.append(promised.mean_completion_s / without.mean_completion_s - 1)
        print(
            f"{devices} devices, seed {seed}: longest wait in order {in_order.longest_s:.0f} s, without promises "
            f"{without.longest_s:.0f} s, with them {promised.longest_s:.0f} s ({waits[-1]:.2f} ×), "
            f"mean {losses[-1]:+.2%}"
        )
    assert max(waits) <= MAX_WAIT
    assert max(losses) <= MAX_LOSS
