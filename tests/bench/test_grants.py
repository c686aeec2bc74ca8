"""What oversubscription buys and what it risks, on the memory that Lucid's jobs were measured to hold alone (RTX 3090).

100 random queues of 40 of its jobs at 20 devices cut in granules of 256 MiB, at most two jobs on each, decided by
`decide` on slowdowns that are all alike, so that memory alone decides who shares. The devices have the 24 GiB that
the jobs were measured on, or, as if the same jobs met smaller cards, 12 or 8. Of each ratio: jobs that start, and how
many more than at ratio 1; the share of the devices whose jobs together hold more than there is, should all be at their
peak at once; and by which share of the memory of all devices. What swapping then costs is in no public table: nothing
here says that sharing beyond the memory pays.
"""

import numpy as np
import pytest
from numpy.typing import NDArray

from interfere.data.importers.lucid import import_lucid
from interfere.policy.decide import decide
from interfere.policy.ledger.grants import slot_account
from interfere.records import Device, Job, ScopeLedger, Snapshot
from tests.bench.history import record
from tests.data.importers.public_files import public
from tests.tables import TablePredictor, context, resolver

pytestmark = pytest.mark.bench
GIB = 2.0**30
RATIOS, SIZES_GIB, DRAWS, JOBS, DEVICES, SEED = (1.0, 1.25, 1.5), (24, 12, 8), 100, 40, 20, 0
GRANULE_BYTES = 256 * 2.0**20


def test_what_a_ratio_buys_and_risks_on_lucids_memory() -> None:
    jobs = {job.workload: job for job in import_lucid(public("lucid")).jobs}
    names, rng = sorted(jobs), np.random.default_rng(SEED)
    queues = [[names[j] for j in rng.integers(0, len(names), JOBS)] for _ in range(DRAWS)]
    figures: dict[str, float] = {}
    for size_gib in SIZES_GIB:
        base = 0.0
        for ratio in RATIOS:
            started, held = decided(size_gib * GIB, ratio, queues, jobs)
            base = base or started
            over = np.maximum(held - size_gib * GIB, 0.0)
            said = {
                "started": started,
                "more": started / base - 1.0,
                "devices over": float((over > 0).mean()),
                "memory over": float(over.sum() / (size_gib * GIB * held.size)),
            }
            print(f"{size_gib} GiB × {ratio:g}:", *(f"{name} {value:.3f}" for name, value in said.items()))
            figures |= {f"{size_gib} GiB x {ratio:g} {name}": value for name, value in said.items()}
            assert started >= base
            assert over.max() <= (ratio - 1.0) * size_gib * GIB  # the granules hold
    record("grants-lucid", figures)


def decided(memory_bytes: float, ratio: float, queues, jobs) -> tuple[float, NDArray[np.float64]]:
    """Jobs that start of a queue, on average, and float64[queues, devices]: the sum of the peaks on each device."""
    (kind,) = {job.device_type for job in jobs.values()}
    predictor = TablePredictor({(v, n): 1.2 for v in jobs for n in jobs}, devices=(kind,))
    devices = tuple(
        Device(
            id=str(k), type=kind, memory_bytes=memory_bytes, granule_bytes=GRANULE_BYTES, oversubscription_ratio=ratio
        )
        for k in range(DEVICES)
    )
    held, started = np.zeros((len(queues), DEVICES)), 0
    for row, queue in zip(held, queues, strict=True):
        pending = tuple(Job(id=str(k), workload=name) for k, name in enumerate(queue))
        seen = Snapshot(pending=pending, devices=devices, now_s=0.0)
        found = decide(context(seen, predictor, resolver(*jobs.values()), "bench"), ScopeLedger(scope="bench"))
        assert not slot_account(found.ledger).overcommitted
        for action in found.plan.actions:
            for place in action.places:
                started += 1
                row[int(place)] += jobs[queue[int(action.job_id)]].memory_peak_bytes
    return started / len(queues), held
