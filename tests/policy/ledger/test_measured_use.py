"""Measured memory use against grants: demand, overuse, and grants of a cluster over time."""

import math
import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.policy.context import ProfileLookup
from interfere.policy.decide import decide
from interfere.policy.ledger.grants import all_grants, running_grants, slot_account
from interfere.policy.subproblems import subproblem_of
from interfere.records import (
    Action,
    ActionKind,
    Device,
    Job,
    JobProfile,
    Limits,
    MemoryUsage,
    ScopeLedger,
    Snapshot,
)
from tests.policy.grant_cases import (
    ALONE,
    END,
    EVERYTHING,
    GIB,
    KEEP,
    NAMES,
    PLAIN,
    SHARED,
    WAIT,
    decided,
    device,
    free,
    job,
    latest_first,
    refused,
    snapshot,
    window,
)
from tests.tables import DEVICE, TablePredictor, context, profile, resolver


def test_measured_use_is_the_demand_where_none_is_known_or_it_was_more() -> None:
    known = resolver(profile("a", peak_bytes=6 * GIB), profile("b"))

    def granted(one: Job, used_gib: float) -> Action:
        uses = {(one.workload, DEVICE): used_gib * GIB, (one.workload, "other"): 99 * GIB}
        return decided(
            snapshot((one,), device("d")), resolve=ProfileLookup(profiles=known, used_bytes=uses)
        ).plan.actions[0]

    assert granted(job("b"), 9.1).reason.endswith("granted 10 GiB (5 granules) for 9.1 GiB (measured use)")
    assert granted(job("a"), 5).grant_bytes == 6 * GIB
    more = granted(job("a"), 9.1)
    assert more.reason.endswith("for 9.1 GiB (measured use, more than the 6 GiB known)")
    assert granted(job("a", 4), 9.1).grant_bytes == 4 * GIB  # who asks gets what it asks for
    nobody = decided(snapshot((job("b"),), device("d"))).plan.actions[0]
    assert nobody.reason.endswith("no grant: its memory demand is unknown")


def test_measured_use_changes_nothing_on_a_device_that_grants_no_memory() -> None:
    knows = ProfileLookup(profiles=PLAIN, used_bytes={("a", DEVICE): 50 * GIB})
    plain = Device(id="d", type=DEVICE, memory_bytes=80 * GIB, residents=(job("a"),))
    assert refused(job("a2"), plain, resolve=knows) == ""
    assert "grants:" in refused(job("a2"), replace(plain, granule_bytes=GIB), resolve=knows)


def kinds(
    allowed: set[ActionKind], *seen: MemoryUsage, residents: tuple[Job, ...] = (), **given_: object
) -> list[Action]:
    """What is told of residents, granted at 10 s, at 200 s."""
    residents = residents or (job("a", 8), job("b", 8))
    ledger = decided(snapshot((), device("d", *residents))).ledger
    limits = Limits(allowed=frozenset({WAIT, *allowed}))
    now = snapshot((), device("d", *residents), now_s=200.0, limits=limits, **given_)
    found = decided(now, ledger, usages=lambda grant: latest_first(one for one in seen if one.job_id == grant.job_id))
    return list(found.plan.actions)


PAST = (window(10, 70, 9), window(70, 140, 9.1))


def test_a_job_over_its_grant_ends_where_that_is_allowed_and_else_is_kept_with_a_warning() -> None:
    (end,) = kinds({END}, *PAST)
    assert (end.kind, end.job_id, end.device_id, end.grant_bytes) == (END, "a", "d", 8 * GIB)
    assert end.reason == "held 9.1 GiB of 8 GiB granted for 130 s"
    end, keep = kinds({END, KEEP}, *PAST)
    assert [(one.kind, one.job_id) for one in (end, keep)] == [(END, "a"), (KEEP, "b")]
    assert (keep.partner_id, keep.slowdown) == ("", 1.0)  # as the plan leaves it
    warned, calm = kinds({KEEP}, *PAST)
    assert warned.reason == "it stays where it is; warning: it held 9.1 GiB of 8 GiB granted for 130 s"
    assert calm.reason == "it stays where it is"
    assert kinds(set(), *PAST) == []


def test_of_two_jobs_over_their_grants_the_lower_priority_ends_and_the_other_is_kept_with_a_warning() -> None:
    seen = (*PAST, window(10, 70, 20, "b"), window(70, 140, 20, "b"))
    assert [(one.kind, one.job_id) for one in kinds({END, KEEP}, *seen)] == [(END, "b"), (KEEP, "a")]
    protected = (job("a", 8), job("b", 8, priority=1))
    end, keep = kinds({END, KEEP}, *seen, residents=protected)
    assert (end.job_id, keep.job_id, "warning" in keep.reason) == ("a", "b", True)


measured = st.lists(
    st.builds(
        lambda at, size, gib, name: window(10.0 * at, 10.0 * (at + size), gib, name),
        st.integers(0, 15),
        st.integers(1, 9),
        st.sampled_from([7.0, 9.0, 12.0]),
        st.sampled_from("ab"),
    ),
    max_size=10,
)


@given(measured, st.integers(1, 6), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_a_larger_grant_never_ends_more_and_order_changes_nothing(
    seen: list[MemoryUsage], more_gib: int, rng: random.Random
) -> None:
    def ends(gib: float) -> list[str]:
        told = kinds({END}, *seen, residents=(job("a", 8), job("b", gib)))
        assert {one.kind for one in told} <= {END}
        return [one.job_id for one in told]

    before = ends(8)
    assert len(ends(8 + more_gib)) <= len(before) <= 1
    rng.shuffle(seen)
    assert ends(8) == before


def test_no_job_starts_beside_one_that_is_to_end() -> None:
    ledger = decided(snapshot((), device("d", job("a", 8)))).ledger
    limits = Limits(allowed=EVERYTHING.allowed - {KEEP})
    now = snapshot((job("b", 8),), device("d", job("a", 8)), now_s=200.0, limits=limits)
    calm = decided(now, ledger)
    assert [(one.kind, one.partner_id) for one in calm.plan.actions] == [(SHARED, "a")]
    plan_ = decided(now, ledger, usages=lambda _: latest_first(PAST)).plan
    waits, end = plan_.actions
    assert (waits.kind, end.kind) == (WAIT, END)
    assert subproblem_of(now, plan_, "b") is None  # nor is it explained as if it might have
    assert waits.reason == "every device is promised to others, or has a job that is to end"


class Cluster:
    """Three devices that hand out memory, jobs that use what they like, a scheduler that does some of what it hears."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        table = {(v, n): float(1 + self.rng.gamma(1.0, 0.6)) for v in NAMES for n in NAMES}
        facts: list[JobProfile] = [profile("a", peak_bytes=12 * GIB), profile("b"), profile("c", peak_bytes=31 * GIB)]
        self.predictor = TablePredictor(table)
        self.resolve = ProfileLookup(profiles=resolver(*facts, profile("d")), used_bytes={("d", DEVICE): 17 * GIB})
        self.pending: list[Job] = []
        self.runs: dict[str, list[Job]] = {name: [] for name in "xyz"}
        self.ratio = {name: float(self.rng.choice([1.0, 1.25, 1.5])) for name in "xyz"}
        self.granule = {name: float(self.rng.choice([0.7, 2.0, 5.0])) for name in "xyz"}
        self.count, self.now_s = 0, 1000.0
        self.used: dict[str, list[MemoryUsage]] = {}

    def new(self) -> Job:
        rng = self.rng
        self.count += 1
        return Job(
            id=f"j{self.count}",
            workload=str(rng.choice(NAMES)),
            gpus=int(rng.choice([1, 1, 1, 2])),
            priority=int(rng.integers(0, 3)),
            remaining_s=float(rng.integers(1, 3000)),
            preemptible=True,
            checkpoint_s=float(rng.integers(0, 20)),
            since_s=math.nan,
            grant_bytes=float(rng.integers(1, 90)) * GIB if rng.random() < 0.5 else math.nan,
        )

    def step(self) -> None:
        """Jobs come, some started by others; jobs end; memory is measured; now and then a device is cut anew."""
        rng = self.rng
        self.pending += [self.new() for _ in range(int(rng.integers(0, 3)))]
        over = {one.id for jobs in self.runs.values() for one in jobs if rng.random() < 0.15}
        for jobs in self.runs.values():
            jobs[:] = [one for one in jobs if one.id not in over]
            if rng.random() < 0.1 and len(jobs) < 2:
                jobs.append(replace(self.new(), gpus=1, since_s=self.now_s))
            for one in jobs:
                most = (one.grant_bytes if one.grant_bytes > 0 else 20 * GIB) * rng.uniform(0.5, 1.5)
                held = MemoryUsage(
                    observation_id="o",
                    job_id=one.id,
                    workload=one.workload,
                    device_type=DEVICE,
                    bytes=most,
                    min_bytes=most,
                    start_s=self.now_s,
                    end_s=self.now_s + 100,
                )
                self.used.setdefault(one.id, []).append(held)
        if rng.random() < 0.1:
            self.ratio[str(rng.choice(list("xyz")))] = float(rng.choice([1.0, 1.25, 1.5]))
        if rng.random() < 0.1:
            self.granule[str(rng.choice(list("xyz")))] = float(rng.choice([0.7, 2.0, 5.0]))
        self.now_s += 100.0

    def seen(self, limits: Limits) -> Snapshot:
        partial = bool(self.rng.random() < 0.2)
        names = [name for name in "xyz" if not partial or self.rng.random() < 0.7] or ["x"]
        return Snapshot(
            pending=tuple(self.pending),
            limits=limits,
            now_s=self.now_s,
            partial=partial,
            devices=tuple(
                device(name, *self.runs[name], ratio=self.ratio[name], granule_gib=self.granule[name]) for name in names
            ),
        )

    def apply(self, actions: tuple[Action, ...]) -> None:
        """Some of it."""
        jobs = {one.id: one for some in (self.pending, *self.runs.values()) for one in some}
        for action in sorted(actions, key=lambda one: one.kind in (ALONE, SHARED)):
            if self.rng.random() < 0.4 or action.kind in (WAIT, KEEP):
                continue
            if any(len(self.runs[name]) > 1 for name in action.places) and action.kind in (
                ALONE,
                SHARED,
                ActionKind.MOVE,
            ):
                continue
            for some in (self.pending, *self.runs.values()):
                some[:] = [one for one in some if one.id != action.job_id]
            if action.kind in (ALONE, SHARED, ActionKind.MOVE):
                for name in action.places:
                    self.runs[name].append(replace(jobs[action.job_id], since_s=self.now_s))


@given(st.integers(0, 1_000_000))
@settings(max_examples=40, deadline=None)
def test_over_time_grants_fit_their_devices_and_only_jobs_over_their_grants_end(seed: int) -> None:
    cluster, ledger = Cluster(seed), ScopeLedger(scope="default")
    for _ in range(10):
        cluster.step()
        allowed = frozenset(kind for kind in ActionKind if kind is WAIT or cluster.rng.random() < 0.8)
        limits = Limits.of(allowed=allowed, grant_patience_s=150.0, move_factor=1.0)
        seen = cluster.seen(limits)
        found = decide(
            context(seen, cluster.predictor, cluster.resolve, "x"),
            ledger,
            lambda grant: latest_first(cluster.used.get(grant.job_id, ())),
        )
        # never more than there is
        assert all(left >= 0 for left in free(found).values())
        held = running_grants(found.ledger)
        # whoever was promised a place on a device that hands out memory holds the grant it was told of
        told = {action.job_id: action for action in found.plan.actions}
        planned = {one.job_id: one.bytes for one in all_grants(found.ledger) if one.planned}
        assert planned == {
            p.action.job_id: p.action.grant_bytes for p in found.ledger.promises if p.action.grant_bytes > 0
        }
        # each job holds in one place, at most once
        assert len({one.job_id for one in all_grants(found.ledger)}) == len(all_grants(found.ledger))
        # no slot has two holders, and grants have as many slots as they take
        devices = {slots.device_id: slots for slots in found.ledger.slots}
        spans = sorted(
            (each.device_id, each.first, each.last) for one in all_grants(found.ledger) for each in one.slots or ()
        )
        assert all(a[0] != b[0] or a[2] < b[1] for a, b in pairwise(spans))
        assert all(0 <= first <= last < devices[name].granules for name, first, last in spans)
        for one in all_grants(found.ledger):
            for name in one.device_ids:
                count = sum(each.last - each.first + 1 for each in one.slots or () if each.device_id == name)
                assert count == devices[name].needs(one.bytes)
        # a grant is kept for as long as its job runs there, with its slots unless the job was to leave or slots changed
        kept, leaving = running_grants(ledger), {one.action.job_id for one in ledger.promises if one.from_device_id}
        same = {each.device_id for each in ledger.slots if each == devices.get(each.device_id)}
        for name, grant in held.items():
            if name in kept and grant.since_s < seen.now_s and grant.device_ids == kept[name].device_ids:
                assert grant.bytes == kept[name].bytes
                assert name in leaving or not same.issuperset(grant.device_ids) or grant.slots == kept[name].slots
        # who ends has more than it was granted, and that is allowed
        ends = [action for action in found.plan.actions if action.kind is END]
        assert not ends or END in allowed
        for action in ends:
            assert max(one.bytes for one in cluster.used[action.job_id]) > held[action.job_id].bytes
        assert len({name for one in ends for name in one.places}) == sum(len(one.places) for one in ends)
        assert all(told[one.job_id] is one for one in ends)
        ledger = found.ledger
        cluster.apply(found.plan.actions)
    empty = tuple(device(name, ratio=cluster.ratio[name], granule_gib=cluster.granule[name]) for name in "xyz")
    after = decided(Snapshot(pending=(), devices=empty, now_s=cluster.now_s + 1), ledger)
    account = slot_account(after.ledger)
    assert (after.ledger.grants, set(account.taken.values())) == ((), set())
