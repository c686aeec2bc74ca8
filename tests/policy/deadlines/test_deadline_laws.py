"""Laws of deadlines and windows, on clusters drawn at random."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from interfere.policy.costs.objectives import objective_of
from interfere.policy.decide import decide
from interfere.records import (
    ActionKind,
    Device,
    Job,
    Limits,
    ObjectiveKind,
    Plan,
    ScopeLedger,
    Snapshot,
    Window,
)
from tests.policy.deadline_cases import ALL, KNOWN, NOW_S, PREDICTOR, SLOW, TABLE
from tests.tables import DEVICE, context, plan


class World:
    """Everything drawn from one seed: two types, windows, residents, deadlines with and without spread."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        devices = []
        for k in range(int(rng.integers(1, 4))):
            until_s = NOW_S + float(rng.integers(20, 400))
            windows = (
                () if rng.random() < 0.5 else (Window(from_s=float(rng.choice([0.0, NOW_S + 10])), until_s=until_s),)
            )
            residents = tuple(self.job(f"r{k}.{r}") for r in range(int(rng.choice([0, 0, 1]))))
            kind = str(rng.choice([DEVICE, SLOW]))
            devices.append(Device(id=f"d{k}", type=kind, residents=residents, windows=windows))
        self.snapshot = Snapshot(
            pending=tuple(self.job(f"p{k}") for k in range(int(rng.integers(1, 5)))),
            devices=tuple(devices),
            now_s=NOW_S,
            limits=Limits.of(risk=float(rng.choice([0.05, 0.5])), allowed=ALL),
            objective=rng.choice([ObjectiveKind.WEIGHTED_EXCESS, ObjectiveKind.DEADLINE_MISSES, ObjectiveKind.AUTO]),
        )

    def job(self, name: str) -> Job:
        rng = self.rng
        remaining_s = float(rng.integers(10, 200))
        return Job(
            id=name,
            workload=str(rng.choice(["a", "b"])),
            remaining_s=remaining_s,
            deadline_s=math.nan if rng.random() < 0.3 else NOW_S + remaining_s * float(rng.uniform(0.8, 4)),
            remaining_p90_s=math.nan if rng.random() < 0.5 else remaining_s * 1.5,
            preemptible=bool(rng.random() < 0.3),
            checkpoint_s=5.0,
        )

    def plan(self, snapshot: Snapshot) -> Plan:
        return decide(context(snapshot, PREDICTOR, KNOWN, "d"), ScopeLedger(scope="default")).plan


seeds = st.integers(0, 1_000_000)


@given(seeds)
@example(28)  # a job runs on a device that is closed: nobody joins it before the device opens
@settings(max_examples=80, deadline=None)
def test_no_start_breaks_a_deadline_at_the_stated_risk_or_outlasts_a_window(seed: int) -> None:
    """A plan over time weighs the chances of a job that is not sure to meet its deadline at that risk even alone."""
    world = World(seed)
    snapshot, risk = world.snapshot, world.snapshot.limits.slowdown.risk
    found = world.plan(snapshot)
    jobs = {one.id: one for one in (*snapshot.pending, *(r for d in snapshot.devices for r in d.residents))}
    devices = {one.id: one for one in snapshot.devices}
    types = {one.type for one in snapshot.devices}
    for action in found.actions:
        if action.kind not in (ActionKind.START_ALONE, ActionKind.START_SHARED):
            continue
        at = devices[action.device_id]
        tau = 2.0 if at.type == SLOW and DEVICE in types else 1.0
        closes_s = min([window.until_s for window in at.windows], default=math.inf)
        assert all(window.from_s <= NOW_S for window in at.windows)
        company = [action.job_id, *filter(None, [action.partner_id])]
        for name, other in (company, company[::-1]) if len(company) == 2 else ((company[0], ""),):
            one = jobs[name]
            scale = 1.5 ** ((0.5 - risk) / 0.45)
            slowdown = TABLE[one.workload, jobs[other].workload] * scale if other else 1.0
            z = {0.05: 1.6449 / 1.2816, 0.5: 0.0}[risk]
            factor = 1.0 if math.isnan(one.remaining_p90_s) else 1.5
            most_s, least_s = (one.remaining_s * factor**sign * tau for sign in (z, -z))
            left_s = one.deadline_s - NOW_S
            is_planned = objective_of(snapshot).planned is not None
            given_up = (most_s if is_planned else least_s) > left_s or (
                name == action.job_id and "at the earliest" in action.reason
            )
            ends_s = most_s
            if other:
                two = jobs[other]
                spread = 1.0 if math.isnan(two.remaining_p90_s) else 1.5**z
                goes_s = two.remaining_s * spread * tau * TABLE[two.workload, one.workload] * scale
                ends_s += min(goes_s, most_s * slowdown) * (1 - 1 / slowdown)
            if other and not math.isnan(left_s) and not given_up:
                assert ends_s <= left_s * (1 + 1e-3)
            if most_s <= closes_s - NOW_S:
                assert ends_s <= (closes_s - NOW_S) * (1 + 1e-3)
            elif name == action.job_id:
                assert one.preemptible


def expected(snapshot: Snapshot, found: Plan) -> tuple[int, int]:
    """How many start, and how many of those with a deadline are given up."""
    gone = sum(a.kind is ActionKind.DECLINE for a in found.actions)
    return sum(bool(a.places) for a in found.actions if a.job_id[0] == "p"), gone


@given(seeds, st.floats(0, 500))
@settings(max_examples=40, deadline=None)
def test_a_later_deadline_and_a_wider_window_never_decline_more(seed: int, more_s: float) -> None:
    world = World(seed)
    before = expected(world.snapshot, world.plan(world.snapshot))
    pending = tuple(replace(one, deadline_s=one.deadline_s + more_s) for one in world.snapshot.pending)
    assert expected(world.snapshot, world.plan(replace(world.snapshot, pending=pending)))[1] <= before[1]
    devices = tuple(
        replace(d, windows=tuple(replace(w, until_s=w.until_s + more_s) for w in d.windows))
        for d in world.snapshot.devices
    )
    assert expected(world.snapshot, world.plan(replace(world.snapshot, devices=devices)))[1] <= before[1]


@pytest.mark.parametrize("seed", range(20))
def test_of_jobs_that_could_share_a_wider_window_never_starts_fewer(seed: int) -> None:
    """All empty, equal weights, no deadlines: windows alone decide, and a wider one only adds choices at one moment."""
    world = World(seed)
    world.snapshot = replace(world.snapshot, objective=ObjectiveKind.WEIGHTED_EXCESS)
    pending = tuple(replace(one, deadline_s=math.nan) for one in world.snapshot.pending)
    devices = tuple(replace(one, residents=()) for one in world.snapshot.devices)
    snapshot = replace(world.snapshot, pending=pending, devices=devices)
    wider = tuple(replace(d, windows=tuple(replace(w, until_s=w.until_s + 100) for w in d.windows)) for d in devices)
    before = expected(snapshot, world.plan(snapshot))[0]
    assert expected(snapshot, world.plan(replace(snapshot, devices=wider)))[0] >= before


@pytest.mark.parametrize("seed", range(20))
def test_without_deadlines_and_windows_the_clock_changes_nothing(seed: int) -> None:
    world = World(seed)

    def plain(one: Job) -> Job:
        return replace(one, deadline_s=math.nan)

    snapshot = replace(
        world.snapshot,
        objective=ObjectiveKind.WEIGHTED_EXCESS,
        pending=tuple(map(plain, world.snapshot.pending)),
        devices=tuple(replace(d, windows=(), residents=tuple(map(plain, d.residents))) for d in world.snapshot.devices),
    )
    timeless = plan(context(replace(snapshot, now_s=math.nan), PREDICTOR, KNOWN, "d"))
    found = world.plan(snapshot)
    assert [(a.kind, a.places, a.partner_id, a.reason) for a in found.actions if a.job_id[0] == "p"] == [
        (a.kind, a.places, a.partner_id, a.reason) for a in timeless.actions
    ]
    assert found.cost == timeless.cost
