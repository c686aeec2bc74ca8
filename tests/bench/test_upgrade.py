"""An upgrade of the software stack on the user's copies of two tables: what the reported pairs tell of the others."""

import math

import numpy as np
import pytest

from interfere.data.importers.gavel import import_gavel
from interfere.data.importers.lucid import import_lucid
from interfere.data.tables import Table
from tests.bench.history import record
from tests.data.importers.public_files import public
from tests.predict.online.belief_streams import UPGRADES, run_upgrade

pytestmark = pytest.mark.bench
SEEDS = range(5)
# By the table, the kind of upgrade and the share of the pairs that were reported.
MAX_ERROR = {
    "gavel": {"devices and jobs": {0.1: 0.055, 0.5: 0.03}, "families": {0.1: 0.05, 0.5: 0.01}},
    "lucid": {"devices and jobs": {0.1: 0.06, 0.5: 0.04}, "families": {0.1: 0.045, 0.5: 0.02}},
}


def _table(name: str) -> Table:
    if name == "gavel":
        return import_gavel(public("gavel/oracle_throughputs.json"))
    return import_lucid(public("lucid/colocate_info.csv").parent)


@pytest.mark.parametrize("name", MAX_ERROR)
@pytest.mark.parametrize("upgrade", UPGRADES)
def test_reported_pairs_teach_about_the_others(name: str, upgrade: str) -> None:
    table = _table(name)
    rows = [
        (pair.device_type, pair.victim, pair.neighbour, math.log(pair.slowdown))
        for pair in table.pairs
        if not math.isnan(pair.slowdown)
    ]
    family_of = {job.workload: job.family for job in table.jobs}
    figures: dict[str, float] = {}
    for share, limit in MAX_ERROR[name][upgrade].items():
        results = [run_upgrade(rows, family_of, share, seed, upgrade=upgrade) for seed in SEEDS]
        error, coverage = (float(np.mean([getattr(r, name) for r in results])) for name in ("error", "coverage"))
        figures |= {f"error {share}": error, f"coverage {share}": coverage}
        figures[f"error of the old table {share}"] = float(np.mean([r.error_of_table for r in results]))
        before = figures[f"error of the old table {share}"]
        print(
            f"{name}, {upgrade}, {share:.0%} reported: error {error:.4f} ({before:.4f} before), {coverage:.3f} covered"
        )
        assert error <= limit
        assert coverage >= 0.85
    kind = f"online-upgrade of {upgrade}" if upgrade == "families" else "online-upgrade"
    record(kind if name == "gavel" else f"{kind}, {name}", figures)
