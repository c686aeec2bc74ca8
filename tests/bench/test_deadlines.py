"""Deadlines with idle edge devices on Venus: the first 300 jobs of each third of the month of four virtual clusters.

Lucid's table is the truth and what is believed, jobs without a row run alone; durations are known.

Half of the nodes of each virtual cluster are the cloud, the other half is there from 22:00 to 08:00 only, at 0.7 of the
speed; with `taken`, these are taken back at random at five minutes' notice; with `added`, they are as many nodes more.
One in five jobs has no deadline. Plans without sharing are tried in the first setting only: they take longest.
`DEADLINE_SETTINGS` names the settings to run (default: all): tight, usual, loose, taken, added.
"""

import os
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from interfere.data.importers.helios import import_helios
from interfere.data.importers.lucid import import_lucid
from interfere.data.tables import Table
from interfere.sim.beliefs import knowing, noisy
from interfere.sim.deadline_study import TO_BEAT, Setting, parts, planned, played, schedulers, table
from interfere.sim.deadlines import EdgeWorld, drawn
from interfere.sim.trace_worlds import worlds_of
from interfere.sim.truth import TruthTable, truth_of
from tests.bench.history import record
from tests.data.importers.public_files import public

pytestmark = pytest.mark.bench
SETTINGS = {
    "usual": ("usual", Setting()),
    "tight": ("tight", Setting()),
    "loose": ("loose", Setting()),
    "taken": ("usual", Setting(taken=True)),
    "added": ("usual", Setting(instead=False)),
}
ERROR = 0.2  # standard error of log slowdown
WANTED = os.environ.get("DEADLINE_SETTINGS", ",".join(SETTINGS)).split(",")


def venus(family: str, setting: Setting) -> tuple[list[EdgeWorld], TruthTable]:
    """The traces, and the truth."""
    trace = import_helios(public("venus/jobs_4vc.csv"), vc_config=public("venus/vc_config.csv"), name="venus").trace
    assert trace is not None
    lucid = import_lucid(public("lucid"))
    truth = truth_of(Table(name="lucid", jobs=lucid.jobs, pairs=lucid.pairs))
    worlds = worlds_of(trace, device_type=truth.device_type, mode=truth.mode).worlds
    each = [part for world in worlds for part in parts(world, trace.start_s)]
    return [setting.world(part, drawn(part, family, seed=0), clock_s) for part, clock_s in each], truth


@pytest.mark.parametrize("name", WANTED)
@pytest.mark.timeout(3600)
def test_deadline_satisfaction(name: str) -> None:
    edges, truth = venus(*SETTINGS[name])
    belief = knowing(truth)
    scores = {
        scheduler: [played(edge, maker, truth, belief) for edge in edges]
        for scheduler, maker in schedulers().items()
        if name == "usual" or not scheduler.startswith("plan") or scheduler.endswith("sharing")
    }
    print(f"\n{name}: {len(edges)} traces, {sum(len(edge.world.jobs) for edge in edges)} jobs, {truth.note()}")
    print(table(scores))
    means = {key: float(np.mean([one.satisfaction for one in mine])) for key, mine in scores.items()}
    record(f"deadlines_{name}", means)
    assert means[TO_BEAT] > means["EDF"]
    assert sum(one.broken for one in scores["slot admission"]) <= 0.01 * sum(
        one.promised for one in scores["slot admission"]
    )


@pytest.mark.timeout(3600)
def test_what_beliefs_that_are_off_cost() -> None:
    """Every predicted slowdown is off by 20 %, and says so; sharing is decided at several risks."""
    edges, truth = venus("usual", Setting())
    belief = replace(noisy(truth, ERROR, seed=0), spread=NormalDist().inv_cdf(0.95) * ERROR)
    makers = {TO_BEAT + " + sharing": schedulers()[TO_BEAT + " + sharing"]}
    makers |= {
        f"plan at risk {risk:g} + sharing": planned(share=True, promise=False, risk=risk) for risk in (0.05, 0.25, 0.5)
    }
    scores = {name: [played(edge, maker, truth, belief) for edge in edges] for name, maker in makers.items()}
    print(f"\npredictions off by {ERROR:.0%}")
    print(table(scores))
    means = {key: float(np.mean([one.satisfaction for one in mine])) for key, mine in scores.items()}
    record("deadlines_off", means)
    assert means["plan at risk 0.5 + sharing"] > means["plan at risk 0.05 + sharing"]
