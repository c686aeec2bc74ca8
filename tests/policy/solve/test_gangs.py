"""Laws of gangs: one device set, one class, no seat twice, few nodes, and most weight wherever the rule promises it."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.errors import InvalidInputError
from interfere.policy.answer.ranking import rank
from interfere.policy.decide import decide
from interfere.policy.ledger.promises import reconcile_promises
from interfere.policy.solve.decision_problem import device_sets
from interfere.policy.solve.planner import plan_pending_jobs
from interfere.policy.validate import validate_snapshot
from interfere.records import ActionKind, Device, Job, Limits, Plan, ScopeLedger, Snapshot, SolveStatus
from tests.tables import DEVICE, TablePredictor, catalogue, context, profile, resolver

NAMES = tuple("abcd")


class World:
    """Random gangs on three nodes of up to four devices."""

    def __init__(self, seed: int, *, sizes: tuple[int, ...] = (1, 1, 2, 3)) -> None:
        rng = np.random.default_rng(seed)
        table = {(v, n): float(1 + rng.gamma(1.0, 0.6)) for v in NAMES for n in NAMES}
        self.predictor = TablePredictor(table, devices=(DEVICE, "other"))
        self.resolve = resolver(*(profile(name, device_type=kind) for name in NAMES for kind in (DEVICE, "other")))

        def job(name: str) -> Job:
            workload, size, weight = rng.choice(list(NAMES)), rng.choice(sizes), rng.choice([1.0, 2.0])
            return Job(id=name, workload=str(workload), gpus=int(size), weight=float(weight))

        self.company: dict[str, list[Job]] = {}
        kinds: dict[str, str] = {}
        for node in range(3):
            kind = DEVICE if node else str(rng.choice([DEVICE, "other"]))
            for k in range(int(rng.integers(node == 0, 5))):
                self.company[f"n{node}.{k}"], kinds[f"n{node}.{k}"] = [], kind
        for k in range(int(rng.integers(0, 3))):
            resident = job(f"r{k}")
            for kind in (DEVICE, "other"):
                free = [name for name, jobs in self.company.items() if not jobs and kinds[name] == kind]
                if len(free) >= resident.gpus:
                    for name in free[: resident.gpus]:
                        self.company[name].append(resident)
                    break
        most = None if rng.random() < 0.7 else int(rng.integers(0, 6))
        self.snapshot = Snapshot(
            pending=tuple(job(f"p{k}") for k in range(int(rng.integers(0, 6)))),
            devices=tuple(
                Device(id=name, type=kinds[name], node=name[:2], residents=tuple(jobs))
                for name, jobs in self.company.items()
            ),
            limits=Limits.of(max_devices=most, min_joint_throughput=0.0),
            now_s=0.0,
        )

    def plan(self) -> Plan:
        return plan_pending_jobs(context(self.snapshot, self.predictor, self.resolve, "d"))


@given(st.integers(0, 100_000))
@settings(max_examples=150, deadline=None)
def test_a_gang_is_on_one_set_of_devices_of_one_class_with_seats_for_it(seed: int) -> None:
    world = World(seed)
    found = world.plan()
    kinds = {device.id: device.type for device in world.snapshot.devices}
    sizes = {job.id: job.gpus for job in world.snapshot.pending}
    assert [action.job_id for action in found.actions] == [job.id for job in world.snapshot.pending]
    before = {name: [job.id for job in jobs] for name, jobs in world.company.items()}
    runs = {name: list(jobs) for name, jobs in before.items()}
    for action in found.actions:
        assert len(set(action.places)) == len(action.places)
        assert action.kind is ActionKind.WAIT or len(action.places) == sizes[action.job_id]
        assert not action.device_ids or action.device_ids[0] == action.device_id
        assert len({kinds[name] for name in action.places}) <= 1
        for name in action.places:
            runs[name].append(action.job_id)
    sets: dict[str, set[str]] = {}
    for name, jobs in runs.items():
        for job in jobs:
            sets.setdefault(job, set()).add(name)
    for jobs in runs.values():
        assert len(jobs) <= 2
        if len(jobs) == 2:  # both of one size, on exactly the same devices
            assert sets[jobs[0]] == sets[jobs[1]]
    most = world.snapshot.limits.max_devices
    taken = {name for action in found.actions for name in action.places if not before[name]}
    assert most is None or len(taken) <= most
    assert found.lower_bound <= found.cost + 1e-9


def most_weight(world: World) -> float:
    """Of jobs that start, over every way to give them device sets: gangs of one size only."""
    jobs, best = world.snapshot.pending, 0.0
    size = next((job.gpus for job in jobs), 1)
    of_kind = Counter(device.type for device in world.snapshot.devices if not device.residents)
    free = {kind: count // size for kind, count in of_kind.items()}
    sets: dict[frozenset[str], list[Job]] = {}
    for name, company in world.company.items():
        for job in company:
            on = frozenset(n for n, others in world.company.items() if job in others)
            sets[on] = world.company[name]
    seats = sum(len(company) == 1 and company[0].gpus == size for company in sets.values())
    limit = world.snapshot.limits.max_devices
    places = sum(free.values()) if limit is None else min(sum(free.values()), limit // size)
    for started in itertools.product((False, True), repeat=len(jobs)):
        if sum(started) <= 2 * places + seats:
            best = max(best, sum(job.weight for job, yes in zip(jobs, started, strict=True) if yes))
    return best


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("seed", range(40))
def test_gangs_of_one_size_start_as_much_weight_as_any_placement(seed: int, size: int) -> None:
    world = World(seed, sizes=(size,))
    found = world.plan()
    weight = {job.id: job.weight for job in world.snapshot.pending}
    started = sum(weight[action.job_id] for action in found.actions if action.places)
    assert started == pytest.approx(most_weight(world))
    assert found.status is SolveStatus.OPTIMAL


def test_where_everything_fits_alone_everything_starts_alone_at_no_cost() -> None:
    jobs = tuple(Job(id=f"p{size}", workload="a", gpus=size) for size in (1, 2, 4))
    devices = tuple(Device(id=f"{node}{k}", type=DEVICE, node=node) for node in "xy" for k in range(4))
    world = World(0)
    found = plan_pending_jobs(context(Snapshot(pending=jobs, devices=devices), world.predictor, world.resolve, "d"))
    assert {action.kind for action in found.actions} == {ActionKind.START_ALONE}
    assert (found.cost, found.lower_bound, found.status) == (0.0, 0.0, SolveStatus.OPTIMAL)


@pytest.mark.parametrize(("weights", "starts"), [((1.0, 1.0), "small"), ((2.0, 1.0), "small"), ((1.0, 2.0), "large")])
def test_the_heavier_goes_first_and_at_equal_weight_the_earlier(weights: tuple[float, float], starts: str) -> None:
    world = World(0)
    jobs = (
        Job(id="small", workload="a", weight=weights[0], gpus=2),
        Job(id="large", workload="a", weight=weights[1], gpus=3),
    )
    devices = tuple(Device(id=str(k), type=DEVICE) for k in range(3))
    found = plan_pending_jobs(context(Snapshot(pending=jobs, devices=devices), world.predictor, world.resolve, "d"))
    assert [action.job_id for action in found.actions if action.places] == [starts]
    (waits,) = (action for action in found.actions if not action.places)
    assert waits.reason.endswith("every place it could take went to jobs of more weight or submitted before")


def nodes_of(free: dict[str, int], size: int, most: int = 9) -> list[str]:
    devices = [Device(id=f"{node}{k}", type=DEVICE, node=node) for node, count in free.items() for k in range(count)]
    return ["".join(sorted(device.node for device in group)) for group in device_sets(devices, size, most)]


def test_sets_take_the_fullest_node_that_holds_them_and_few_nodes_else() -> None:
    assert nodes_of({"x": 4, "y": 2, "z": 3}, 2) == ["yy", "zz", "xx", "xx"]
    assert nodes_of({"x": 4, "y": 2, "z": 3}, 4) == ["xxxx", "yzzz"]
    assert nodes_of({"x": 1, "y": 2, "z": 3}, 4) == ["xzzz"]
    assert nodes_of({"x": 1, "y": 1}, 3) == []
    assert nodes_of({"x": 8}, 2, most=1) == ["xx"]


@given(st.dictionaries(st.sampled_from("uvwxyz"), st.integers(1, 8)), st.integers(1, 8))
def test_the_first_set_takes_no_more_nodes_than_it_must(free: dict[str, int], size: int) -> None:
    found = nodes_of(free, size, most=1)
    need = next((k for k in range(1, 7) if sum(sorted(free.values())[-k:]) >= size), None)
    assert [len(set(group)) for group in found] == ([] if need is None or sum(free.values()) < size else [need])


def gang(name: str, gpus: int) -> Job:
    return Job(id=name, workload="a", gpus=gpus)


@pytest.mark.parametrize(
    ("companies", "partial", "fields"),
    [
        ((("r", 2), ("r", 2)), False, []),
        ((("r", 3), ("r", 3)), False, ["devices[1].residents[0].gpus"]),
        ((("r", 3), ("r", 3)), True, []),
        ((("r", 2), ("r", 2), ("r", 2)), True, ["devices[2].residents[0].gpus"]),
        ((("r", 1), ("r", 1)), False, ["devices[1].residents[0].id"]),
        ((("r", 2), ("r", 1)), False, ["devices[1].residents[0].id"]),
    ],
)
def test_a_gang_runs_on_as_many_devices_as_it_takes(
    companies: tuple[tuple[str, int], ...], partial: bool, fields: list[str]
) -> None:
    devices = tuple(Device(id=str(k), type=DEVICE, residents=(gang(*one),)) for k, one in enumerate(companies))
    found = validate_snapshot(Snapshot(pending=(), devices=devices, partial=partial))
    assert [violation.field for violation in found] == fields


def test_a_gang_twice_on_one_device_is_one_job_twice() -> None:
    devices = (Device(id="0", type=DEVICE, residents=(gang("r", 2), gang("r", 2))),)
    assert [v.field for v in validate_snapshot(Snapshot(pending=(), devices=devices))] == ["devices[0].residents[1].id"]


def test_a_gang_is_promised_all_its_devices() -> None:
    world = World(0)
    devices = tuple(Device(id=str(k), type=DEVICE) for k in range(3))
    seen = Snapshot(pending=(gang("g", 2), gang("x", 1)), devices=devices, now_s=0.0)
    first = decide(context(seen, world.predictor, world.resolve, "one"), ScopeLedger(scope="default"))
    again = decide(context(seen, world.predictor, world.resolve, "two"), first.ledger)
    assert [a.places for a in again.plan.actions] == [a.places for a in first.plan.actions] == [("0", "1"), ("2",)]
    half = (Device(id="0", type=DEVICE, residents=(gang("y", 1),)), *devices[1:])
    taken = context(Snapshot(pending=seen.pending, devices=half, now_s=1.0), world.predictor, world.resolve)
    released = reconcile_promises(first.ledger.promises, taken).released
    assert [(r.promise.action.job_id, r.reason) for r in released] == [("g", "its place was taken by y")]
    both = tuple(Device(id=d, type=DEVICE, residents=(gang("g", 2),)) for d in "01")
    runs = context(Snapshot(pending=(), devices=both, now_s=1.0), world.predictor, world.resolve)
    found = reconcile_promises(first.ledger.promises, runs)
    assert [p.action.job_id for p in found.fulfilled] == ["g"]


def test_a_resident_gang_ends_as_late_as_one_of_its_devices_says() -> None:
    table = TablePredictor({("a", "a"): 2.0})
    pair = (Job(id="r", workload="a", gpus=2, remaining_s=10.0), gang("s", 2))
    seen = Snapshot(pending=(), devices=tuple(Device(id=d, type=DEVICE, residents=pair) for d in "01"), now_s=0.0)
    found = decide(context(seen, table, resolver(profile("a")), "one"), ScopeLedger(scope="default"))
    assert found.plan.resolve_at_s == pytest.approx(20.0)
    assert math.isfinite(found.plan.cost)


def test_one_device_of_a_gang_is_no_seat_and_no_place_for_one() -> None:
    world = World(0)
    devices = tuple(Device(id=d, type=DEVICE, residents=(gang("r", 2),)) for d in "01")
    found = plan_pending_jobs(
        context(Snapshot(pending=(gang("x", 1),), devices=devices), world.predictor, world.resolve, "d")
    )
    assert found.actions[0].kind is ActionKind.WAIT
    (ranked,) = rank(gang("x", 1), devices[:1], world.predictor, catalogue(world.resolve), Limits())
    assert (ranked.feasible, ranked.reason) == (False, "no free seat: a gang runs there")
    (ranked,) = rank(gang("x", 2), [Device(id="0", type=DEVICE)], world.predictor, catalogue(world.resolve), Limits())
    assert (ranked.feasible, ranked.reason) == (False, "it takes 2 devices at once: ask Match")


def test_large_gangs_keep_to_themselves_where_the_limits_say_so() -> None:
    """Two gangs of four and two of two, each pair on devices for one of them."""
    world = World(0)
    pending = tuple(Job(id=f"g{size}.{k}", workload="a", gpus=size) for size in (4, 2) for k in range(2))
    devices = tuple(Device(id=f"d{k}", type=DEVICE, node="n") for k in range(6))
    for most, waiting in ((None, 0), (4, 0), (3, 1), (1, 2)):
        asked = Snapshot(pending=pending, devices=devices, limits=Limits(most_shared_gpus=most))
        found = plan_pending_jobs(context(asked, world.predictor, world.resolve, "d"))
        shared = {action.job_id for action in found.actions if action.kind is ActionKind.START_SHARED}
        assert sum(action.kind is ActionKind.WAIT for action in found.actions) == waiting
        assert all(most is None or int(name[1]) <= most for name in shared)
        why = [action.reason for action in found.actions if action.kind is ActionKind.WAIT]
        assert most != 1 or any(
            "most_shared_gpus = 1" in reason for reason in (*why, *(r.reason for r in found.refused))
        )
    with pytest.raises(InvalidInputError, match="most_shared_gpus"):
        Limits(most_shared_gpus=0)


def test_single_jobs_leave_the_empty_devices_to_gangs_where_that_starts_more() -> None:
    """Two gangs of two could share the two empty devices; of two single jobs one finds a seat beside a resident."""
    world = World(0)
    pending = (
        Job(id="s0", workload="a", priority=2),
        Job(id="s1", workload="b"),
        Job(id="g0", workload="c", gpus=2),
        Job(id="g1", workload="d", gpus=2),
    )
    devices = (
        Device(id="d0", type=DEVICE),
        Device(id="d1", type=DEVICE),
        Device(id="d2", type=DEVICE, residents=(Job(id="r", workload="a"),)),
    )
    found = plan_pending_jobs(context(Snapshot(pending=pending, devices=devices), world.predictor, world.resolve, "d"))
    kinds = {action.job_id: action.kind for action in found.actions}
    assert kinds == dict.fromkeys(("s0", "g0", "g1"), ActionKind.START_SHARED) | {"s1": ActionKind.WAIT}
    assert found.status is SolveStatus.OPTIMAL
