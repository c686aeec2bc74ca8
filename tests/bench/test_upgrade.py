"""An upgrade of the software stack on the user's copy of Gavel's table: what the reported pairs tell of the others."""

import math

import numpy as np
import pytest

from interfere.data.importers.gavel import import_gavel
from tests.bench.history import record
from tests.data.importers.public_files import public
from tests.predict.online.belief_streams import run_upgrade

pytestmark = pytest.mark.bench
SEEDS = range(5)
# By the kind of upgrade and the share of the pairs that were reported.
MAX_ERROR = {"devices and jobs": {0.1: 0.08, 0.5: 0.04}, "families": {0.1: 0.07, 0.5: 0.035}}


@pytest.mark.parametrize("upgrade", MAX_ERROR)
def test_reported_pairs_teach_about_the_others(upgrade: str) -> None:
    table = import_gavel(public("gavel/oracle_throughputs.json"))
    rows = [
        (pair.device_type, pair.victim, pair.neighbour, math.log(pair.slowdown))
        for pair in table.pairs
        if not math.isnan(pair.slowdown)
    ]
    family_of = {job.workload: job.family for job in table.jobs}
    figures: dict[str, float] = {}
    for share, limit in MAX_ERROR[upgrade].items():
        results = [run_upgrade(rows, family_of, share, seed, upgrade=upgrade) for seed in SEEDS]
        error, coverage = (float(np.mean([getattr(r, name) for r in results])) for name in ("error", "coverage"))
        figures |= {f"error {share}": error, f"coverage {share}": coverage}
        figures[f"error of the old table {share}"] = float(np.mean([r.error_of_table for r in results]))
        of_table = figures[f"error of the old table {share}"]
        print(f"{upgrade}, {share:.0%} reported: error {error:.4f} ({of_table:.4f} before), coverage {coverage:.3f}")
        assert error <= limit
        assert coverage >= 0.85
    record(f"online-upgrade of {upgrade}" if upgrade == "families" else "online-upgrade", figures)
