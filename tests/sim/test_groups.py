"""Three and more jobs on one device: how fast they run, which of them the server lets share, and how that is scored."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from interfere.data.tables import Table
from interfere.policy.context import PlanningContext, ProfileLookup
from interfere.policy.decide import decide
from interfere.records import (
    ActionKind,
    Device,
    GroupMeasurement,
    Job,
    JobProfile,
    Limits,
    ObjectiveKind,
    PairMeasurement,
    PairStatus,
    ScopeLedger,
    Snapshot,
)
from interfere.sim.beliefs import true_beliefs
from interfere.sim.cluster import Cluster, Decision, Start
from interfere.sim.replay import Replayed, replay
from interfere.sim.schedulers.records import PRESETS, SchedulerRecord
from interfere.sim.schedulers.registry import make_scheduler
from interfere.sim.schedulers.sharing import SchedulerSettings
from interfere.sim.score import day_totals_of, group_slowdowns, score
from interfere.sim.truth import Composition, TableTruth, TruthTable, truth_of
from interfere.sim.world import DAY_S
from interfere.testing.schedulers import MODE, TYPE, USUAL, job, truth
from tests.sim.small_worlds import world
from tests.study.studies import compared

LIGHT = truth((1.1,), names=("light",))


@dataclass
class Everything:
    """Starts every waiting job on the first device."""

    def decide(self, cluster: Cluster) -> Decision:
        return Decision(starts=[Start(job_id=name, device_ids=("d0",)) for name in cluster.waiting])


def settings(table: TruthTable) -> SchedulerSettings:
    known = true_beliefs(table)
    return SchedulerSettings(predictor=known, profiles=known.profiles, mode=MODE)


def with_seats(name: str, seats: int) -> SchedulerRecord:
    return replace(PRESETS[name], seats=seats)


def replayed(record: SchedulerRecord, *jobs: object, count: int = 1, table: TruthTable = USUAL) -> Replayed:
    made = world(*jobs, count=count)  # type: ignore[arg-type]
    return replay(made, TableTruth([table]), make_scheduler(record, settings(table)), seats=record.seats)


@pytest.mark.parametrize(("composition", "slowdown"), [(Composition.SUM, 1.2), (Composition.PRODUCT, 1.21)])
def test_three_jobs_slow_each_other_down_by_the_sum_or_the_product_of_their_pairs(
    composition: Composition, slowdown: float
) -> None:
    made = world(job("a", 0, 10), job("b", 0, 20), job("c", 0, 20))
    done = replay(made, TableTruth([LIGHT], composition), Everything(), seats=3)
    first_s = 10 * done.spans[0].slowdown
    assert done.spans[0].slowdown == pytest.approx(slowdown)
    assert done.ended_s.tolist() == pytest.approx([first_s, first_s + 1.1 * 10, first_s + 1.1 * 10])
    assert set(group_slowdowns(done)) == {("a", "b", "c"), ("b", "c")}
    scored = score([done], cap=1.15)
    assert scored.worst_slowdown == pytest.approx(slowdown)
    assert (scored.pairs, scored.past_cap, scored.shared) == (2, 0.5, pytest.approx(1.0))
    assert scored.used_gpu_h == pytest.approx(done.ended_s.max() / 3600)


def test_no_more_jobs_than_seats_start_on_a_device() -> None:
    made = world(*(job(name, 0, 10) for name in "abcd"))
    assert replay(made, TableTruth([LIGHT]), Everything(), seats=4).busy.max() == 1
    with pytest.raises(ValueError, match="leave a seat"):
        replay(made, TableTruth([LIGHT]), Everything(), seats=3)


def test_no_group_delays_the_job_that_backfill_reserves_devices_for() -> None:
    """The gang needs both devices at 100; short jobs join and end before, a long one would not."""
    jobs = [job("a", 0, 100), job("b", 0, 100), job("gang", 1, 10, gpus=2), job("long", 2, 90), job("short", 3, 5)]
    done = replayed(
        with_seats("fifo-easy-matching", 3), *jobs, job("brief", 3, 5), count=2, table=truth((1.0,), names=("light",))
    )
    gang, long, short, brief = done.started_s[2:]
    assert (gang, short, brief) == (100.0, 3.0, 3.0)
    assert long == 2.0
    slowed = replayed(with_seats("fifo-easy-matching", 3), *jobs, count=2, table=LIGHT)
    assert slowed.started_s[2] == 100.0
    assert slowed.started_s[3] >= 100.0


def measured(company: Sequence[str], slowdown: float) -> GroupMeasurement:
    known = not math.isnan(slowdown)
    return GroupMeasurement(
        victim="a",
        company=tuple(company),
        device_type=TYPE,
        mode=MODE,
        slowdown=slowdown,
        status=PairStatus.OK if known else PairStatus.INFEASIBLE,
        reason="" if known else "too large",
    )


def test_a_measured_group_runs_as_it_was_measured_and_one_that_does_not_fit_is_refused() -> None:
    pair = PairMeasurement(victim="a", neighbour="a", device_type=TYPE, mode=MODE, slowdown=1.1)
    table = Table(
        name="t",
        jobs=(JobProfile(workload="a", device_type=TYPE, step_time_s=0.1),),
        pairs=(pair,),
        groups=(measured(("a", "a"), 1.7), measured(("a", "a", "a"), math.nan)),
    )
    found = TableTruth([truth_of(table)])
    assert "2 rows of measured groups" in truth_of(table).note()
    made = world(*(job(name, 0, 10, "a") for name in "abc"))
    assert replay(made, found, Everything(), seats=4).spans[0].slowdown == 1.7
    with pytest.raises(ValueError, match="must not share"):
        replay(world(*(job(name, 0, 10, "a") for name in "abcd")), found, Everything(), seats=4)


def test_a_third_job_starts_only_with_a_third_seat() -> None:
    jobs = [job(name, 0, 100) for name in "abc"]
    waits = [replayed(with_seats("policy", seats), *jobs, table=LIGHT).started_s.max() for seats in (2, 3)]
    assert waits[0] > 0
    assert waits[1] == 0
    for name in ("sjf-first-fit-matching", "fifo-matching", "qssf-first-fit-matching"):
        assert replayed(PRESETS[name], *jobs, table=LIGHT).started_s.max() > 0
        assert replayed(with_seats(name, 3), *jobs, table=LIGHT).started_s.max() == 0


def test_the_replay_places_as_the_server_decides() -> None:
    """The starts at one moment are those of `decide` for the same cluster as a snapshot."""
    running = [job(f"r{k}", 0, 1000, workload) for k, workload in enumerate(("light", "medium", "light"))]
    joining = [job(f"j{k}", 50, 1000, workload) for k, workload in enumerate(("light", "heavy", "light"))]
    done = replayed(with_seats("policy", 4), *running, *joining, count=2)
    residents: dict[str, list[Job]] = {"d0": [], "d1": []}
    for one in running:
        first = next(span for span in done.spans if span.job_id == one.id)
        residents[first.device_ids[0]].append(Job(id=one.id, workload=one.workload, remaining_s=900.0))
    known = true_beliefs(USUAL)
    snapshot = Snapshot(
        pending=tuple(Job(id=one.id, workload=one.workload, weight=3.0 - k) for k, one in enumerate(joining)),
        devices=tuple(
            Device(id=name, type=TYPE, node="n0", mode=MODE, seats=4, residents=tuple(jobs))
            for name, jobs in residents.items()
        ),
        limits=Limits.of(
            allowed=frozenset({ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.WAIT}), ageing_s=0.0
        ),
        objective=ObjectiveKind.TOTAL_SLOWDOWN,
        now_s=50.0,
        partial=True,
    )
    catalogue = ProfileLookup(profiles=lambda one, device_type: known.profiles.get((one.workload, device_type)))
    answered = decide(
        PlanningContext(snapshot=snapshot, predictor=known, catalogue=catalogue), ScopeLedger(scope="default")
    )
    decided = {action.job_id: action.places for action in answered.plan.actions if action.places}
    started = {
        span.job_id: span.device_ids for span in reversed(done.spans) if span.start_s == 50 and span.job_id[0] == "j"
    }
    assert started == decided
    assert len(decided) > 1


def test_a_study_compares_seats_with_pairs_and_tells_the_worst_slowdown_of_each_day() -> None:
    days = [[job(f"{day}.{k}", day * DAY_S + k, 30_000) for k in range(3 + day % 2)] for day in range(6)]
    made = world(*(one for jobs in days for one in jobs))
    assert all(one.arrival_s <= other.arrival_s for one, other in pairwise(made.jobs))
    records = (PRESETS["policy"], with_seats("policy", 3))
    found = compared([made], LIGHT, records)
    lines = {line.policy: line for line in (*found.stable, *found.overloaded)}
    assert lines["policy"].change_to_pairs is None
    seated = lines["policy-3-seats"]
    assert seated.against_pairs == "policy"
    assert seated.change_to_pairs is not None
    assert seated.change_to_pairs.mean == pytest.approx(
        seated.completion_s.mean / lines["policy"].completion_s.mean - 1
    )
    assert seated.worst_slowdown.interval.population == "mean over periods of a load like this one (6 recorded days)"
    assert lines["policy-alone"].worst_slowdown.mean == 1.0
    assert lines["policy"].worst_slowdown.mean == pytest.approx(1.1)
    assert 1.1 < seated.worst_slowdown.mean <= 1.2
    again = compared([made], LIGHT, records, composition=Composition.PRODUCT)
    assert {line.policy for line in (*again.stable, *again.overloaded)} == set(lines)


def test_the_worst_slowdown_of_a_day_is_of_the_jobs_that_arrived_on_it() -> None:
    late = replace(job("c", DAY_S, 10), id="c")
    done = replay(world(job("a", 0, 10), job("b", 0, 10), late), TableTruth([LIGHT]), Everything())
    sums = day_totals_of(done).worst()
    assert sums.numerator.tolist() == pytest.approx([1.1, 1.0])
    assert sums.denominator.tolist() == [1.0, 1.0]


def test_more_than_two_seats_are_compared_with_two_though_nobody_asked_for_these() -> None:
    jobs = (job("a", 0, 10, "light"), job("b", 0, 20, "light"), job("c", 1, 5, "light"))
    done = compared([world(*jobs)], LIGHT, [with_seats("policy", 3)])
    lines = {line.policy: line for line in done.stable or done.overloaded}
    assert list(lines) == ["policy-alone", "policy", "policy-3-seats"]
    assert lines["policy-3-seats"].change_to_pairs is not None
