"""What a what-if answer finds: devices to give back, who ends later, from which load on sharing pays."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfere.data.tables import Table, write_table
from interfere.data.traces import read_trace, write_trace
from interfere.errors import InvalidInputError, UnfitError
from interfere.records import PairMeasurement
from interfere.sim.beliefs import true_beliefs
from interfere.sim.replay import replay
from interfere.sim.schedulers.orders import Fifo
from interfere.sim.schedulers.queue import QueueScheduler
from interfere.sim.schedulers.records import ALL_QUEUES, COMMON_QUEUES, PRESETS, SchedulerRecord
from interfere.sim.trace_worlds import typical_week
from interfere.sim.truth import GANG_EXCESS, TableTruth
from interfere.sim.world import DAY_S
from interfere.study.engine import Runner
from interfere.study.questions import ask
from interfere.study.replay_report import change_text
from interfere.study.replays import ReplayInputs, ReplayTask, Scenario, results_of, run_replays
from interfere.study.whatif_findings import (
    LATER_SHARE,
    JobGroup,
    change_over_loads,
    gang_break_even,
    is_equal_service,
    next_count,
    pays_from,
    who_ends_later,
)
from interfere.study.whatif_question import WhatIfAnswer
from interfere.study.whatif_report import queue_text
from interfere.study.whatif_sentences import gang_text, later_text, verdict
from interfere.testing.schedulers import USUAL, job
from interfere.training.study_models import TrainedModels
from tests.sim.small_worlds import sharings, world
from tests.study.test_whatif import make_trace, quick

ALONE, SHARED = PRESETS["fifo-easy"], PRESETS["fifo-easy-greedy"]


@given(st.integers(0, 400), st.data())
def test_the_search_finds_the_first_number_at_which_service_is_worse(largest: int, data: st.DataObject) -> None:
    limit = data.draw(st.integers(0, largest))  # equal up to here
    tried: dict[int, bool] = {}
    while (count := next_count(tried, largest)) is not None:
        assert 0 <= count <= largest
        assert count not in tried
        tried[count] = count <= limit
    assert max(number for number, is_equal in tried.items() if is_equal) == limit
    assert len(tried) <= 2 * math.log2(largest + 2) + 2


def test_where_service_is_worse_at_once_nothing_can_be_given_back() -> None:
    assert next_count({}, 5) == 0
    assert next_count({0: False}, 5) is None


@pytest.mark.parametrize(
    ("load_s", "gangs"),
    [(200.0, False), (230.0, False), (270.0, True), (400.0, False), (400.0, True), (3_000.0, False)],
)
def test_devices_to_give_back_are_those_of_a_search_over_all_numbers(
    small: Table, small_folder: Path, tmp_path: Path, load_s: float, gangs: bool
) -> None:
    site = make_trace(
        tmp_path / "site", [each.workload for each in small.jobs], gangs=gangs, count=200, load_s=load_s, nodes=3
    )
    answer = ask(quick(site, small_folder), TrainedModels())
    assert isinstance(answer, WhatIfAnswer)
    (only,) = answer.inputs.worlds
    shared = PRESETS["fifo-easy-greedy-one-gpu"] if gangs else SHARED
    assert only.load < 1
    (saved,) = answer.saved
    assert (saved.devices, saved.without_sharing, saved.with_sharing) == (12, *by_brute_search(answer, shared, "", 12))


def by_brute_search(answer: WhatIfAnswer, shared: SchedulerRecord, kind: str, devices: int) -> tuple[int, int]:
    """Return how many devices of a type can be given back without sharing and with it, every number replayed."""
    inputs = answer.inputs.replays
    reference, *_ = results_of(inputs, run_replays(inputs, [ReplayTask(scheduler=ALONE)], Runner()))
    found = []
    for scheduler in (ALONE, shared):
        equal = 0
        for count in range(devices + 1):
            task = ReplayTask(scheduler=scheduler, given_back=count, given_type=kind if count else "")
            try:
                (result,) = results_of(inputs, run_replays(inputs, [task], Runner()))
            except (InvalidInputError, UnfitError):  # the largest job fits on no type
                continue
            equal = count if is_equal_service(result.score, reference.score) else equal
        found.append(equal)
    return found[0], found[1]


@pytest.fixture(scope="module")
def two_types(small: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of a fast device type and of one that is half as fast, where pairs lose less."""
    folder = tmp_path_factory.mktemp("tables") / "two_types"
    folder.mkdir()
    types = (("fast", 1.0), ("slow", 2.0))
    jobs = [
        replace(each, device_type=kind, step_time_s=k * each.step_time_s) for kind, k in types for each in small.jobs
    ]
    pairs = [
        PairMeasurement(
            victim=each.victim,
            neighbour=each.neighbour,
            device_type=kind,
            mode=each.mode,
            slowdown=1 + (each.slowdown - 1) / k,
        )
        for kind, k in types
        for each in small.ok_pairs
    ]
    write_table(folder, Table(name="two_types", jobs=tuple(jobs), pairs=tuple(pairs)))
    return folder


@pytest.mark.parametrize(("load_s", "gangs"), [(300.0, False), (420.0, True)])
def test_devices_of_each_type_to_give_back_are_those_of_a_search_over_all_numbers(
    small: Table, two_types: Path, tmp_path: Path, load_s: float, gangs: bool
) -> None:
    names = [each.workload for each in small.jobs]
    site = make_trace(tmp_path / "site", names, gangs=gangs, count=160, load_s=load_s, nodes=1)
    trace = read_trace(site)
    clusters = (replace(trace.clusters[0], device_type="slow", nodes=2), replace(trace.clusters[0], device_type="fast"))
    write_trace(site, replace(trace, clusters=clusters))
    answer = ask(quick(site, two_types, device_type="fast"), TrainedModels())
    assert isinstance(answer, WhatIfAnswer)
    (only,) = answer.inputs.worlds
    assert [(each.device.type, each.speed) for each in only.devices] == [("fast", 1.0)] * 4 + [("slow", 0.5)] * 8
    shared = PRESETS["fifo-easy-greedy-one-gpu"] if gangs else SHARED
    for saved, (kind, devices) in zip(answer.saved, (("fast", 4), ("slow", 8)), strict=True):
        assert (saved.device_type, saved.devices) == (kind, devices)
        expected = by_brute_search(answer, shared, kind, devices)
        assert (saved.without_sharing, saved.with_sharing) == expected
    text = " ".join(verdict(answer)[0])
    assert re.search(
        r"Of one type, all others kept, you could give back .* of 4 fast.* or .* of 8 slow.*, with the", text
    )
    assert answer.pays_from == pays_from(answer.main_lines)
    assert all(math.isclose(line.load, line.task.load, rel_tol=1e-6) for line in answer.main_lines if line.task.load)
    assert any("4 fast of speed 1.00, 8 slow of speed 0.50" in note for note in answer.inputs.notes)


def test_a_gang_loses_the_excess_that_is_asked_for() -> None:
    made = world(job("host", 0, 10, "heavy", gpus=2), job("guest", 0, 2, "light", gpus=2), count=2)
    scheduler = QueueScheduler(order=Fifo(), sharing=sharings(USUAL)[1])

    def slowdowns(excess: float) -> dict[str, float]:
        done = replay(made, TableTruth([USUAL], gang_excess=excess), scheduler)
        return {span.job_id: span.slowdown for span in done.spans if span.company_ids}

    assert slowdowns(1.0) == {"host": 1.2, "guest": 1.3}
    assert slowdowns(3.0) == {"host": pytest.approx(1.6), "guest": pytest.approx(1.9)}
    inputs = ReplayInputs(worlds=(made,), scenarios=(Scenario(name="", truth=USUAL, beliefs=true_beliefs(USUAL)),))
    greedy = PRESETS["fifo-first-fit-greedy"]
    tasks = [ReplayTask(scheduler=greedy, gang_excess=excess) for excess in (1.0, 3.0)]
    once, thrice = results_of(inputs, run_replays(inputs, tasks, Runner()))
    assert once.score.worst_slowdown == pytest.approx(1.3)
    assert thrice.score.worst_slowdown == pytest.approx(1.9)


@pytest.fixture(scope="module")
def answers(small: Table, small_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, WhatIfAnswer]:
    """Of a busy cluster and of one with gangs."""
    found = {}
    for name, gangs in (("busy", False), ("gangs", True)):
        folder = tmp_path_factory.mktemp(name) / "site"
        site = make_trace(folder, [each.workload for each in small.jobs], gangs=gangs, count=200, load_s=680.0)
        answer = ask(quick(site, small_folder, loads=(0.5, 0.9)), TrainedModels())
        assert isinstance(answer, WhatIfAnswer)
        found[name] = answer
    return found


def test_who_ends_later_is_counted_job_by_job(answers: dict[str, WhatIfAnswer]) -> None:
    answer = answers["gangs"]
    inputs = answer.inputs.replays
    tasks = [ReplayTask(scheduler=PRESETS[name]) for name in ("fifo-easy", "fifo-easy-greedy-one-gpu")]
    alone, shared = results_of(inputs, run_replays(replace(inputs, keep_jobs=True), tasks, Runner()))
    assert alone.replayed is not None
    assert shared.replayed is not None
    ratio = shared.replayed.completion_s / alone.replayed.completion_s
    jobs = answer.inputs.worlds[0].jobs
    every, *groups = answer.later
    assert (every.kind, every.jobs, every.later) == ("all", len(jobs), int((ratio > 1 + LATER_SHARE).sum()))
    assert 0 < every.later < every.jobs
    for kind, name_of in (("user", lambda one: one.user), ("workload", lambda one: one.workload)):
        for group in (each for each in groups if each.kind == kind):
            own = np.array([name_of(one) == group.name for one in jobs])
            assert (group.jobs, group.later) == (own.sum(), (ratio[own] > 1 + LATER_SHARE).sum())
    for kind in ("size", "run time"):
        assert sum(each.jobs for each in groups if each.kind == kind) == len(jobs)
        assert sum(each.later for each in groups if each.kind == kind) == every.later
    assert [each.name for each in groups if each.kind == "size"] == ["1 GPU", "2 to 3 GPUs"]
    assert not [each for each in groups if each.kind == "cluster"]  # there is one


def test_who_ends_later_is_told_by_cluster_where_there_are_several(answers: dict[str, WhatIfAnswer]) -> None:
    """The second cluster is the first with both schedulers exchanged."""
    answer = answers["busy"]
    (first,) = answer.inputs.worlds
    tasks = [ReplayTask(scheduler=one) for one in (ALONE, SHARED)]
    alone, shared = results_of(answer.inputs.replays, run_replays(answer.inputs.replays, tasks, Runner()))
    exchanged = [
        replace(each, task=ReplayTask(scheduler=one, world=1)) for each, one in ((shared, ALONE), (alone, SHARED))
    ]
    found = who_ends_later((first, replace(first, name="second")), [alone, shared, *exchanged], ALONE, SHARED)
    ours, theirs = [each for each in found if each.kind == "cluster"]
    assert (ours.name, theirs.name) == (first.name, "second")
    assert (ours.jobs, ours.later, ours.sooner) == (theirs.jobs, theirs.sooner, theirs.later)
    assert ours.sooner > ours.later


def test_the_load_from_which_it_pays_lies_where_its_line_passes_one_per_cent(answers: dict[str, WhatIfAnswer]) -> None:
    (line, *_) = answers["busy"].main_lines
    assert line.change is not None

    def at(load: float, mean: float) -> object:
        return replace(line, load=load, change=replace(line.change, mean=mean))

    assert pays_from([at(0.9, -0.05), at(0.5, 0.0), at(0.7, -0.01)]) == pytest.approx(0.7)
    assert pays_from([at(0.5, 0.01), at(0.9, -0.03)]) == pytest.approx(0.7)
    assert pays_from([at(0.5, -0.02), at(0.9, -0.05)]) == 0.0
    assert math.isnan(pays_from([at(0.5, -0.02), at(0.9, 0.0)]))
    assert math.isnan(pays_from([]))


def test_what_gangs_may_lose_lies_where_their_sharing_does_no_good_any_more(answers: dict[str, WhatIfAnswer]) -> None:
    answer = answers["gangs"]
    (without, *_) = [line for line in answer.main_lines if line.task.load is None]
    assert sorted(line.task.gang_excess for line in answer.gangs) == [GANG_EXCESS, 1.0, 2.0]

    def at(excess: float, seconds: float) -> object:
        task = replace(without.task, gang_excess=excess)
        return replace(without, task=task, score=replace(without.score, completion_s=np.array([seconds])))

    base = at(1.0, 100.0)
    assert gang_break_even([at(1.0, 90.0), at(2.0, 110.0)], base) == pytest.approx(1.5)
    assert gang_break_even([at(1.0, 90.0), at(2.0, 95.0)], base) == math.inf
    assert math.isnan(gang_break_even([at(1.0, 101.0), at(2.0, 110.0)], base))
    assert "Jobs on several GPUs " in gang_text(answer)
    assert gang_text(answers["busy"]) == ""


def test_one_week_under_the_servers_decisions_is_told_beside_the_first_queue(answers: dict[str, WhatIfAnswer]) -> None:
    answer = answers["gangs"]
    labels = [each.scheduler.label for each in answer.week]
    assert labels == ["fifo-easy", "fifo-easy-greedy-one-gpu", "policy-one-gpu"]
    (made,) = answer.inputs.worlds
    week = typical_week(made)
    assert {each.score.jobs for each in answer.week} == {len(week.jobs)}
    first = answer.week[0].score.mean_completion_s
    assert [each.change for each in answer.week] == [each.score.mean_completion_s / first - 1 for each in answer.week]


@given(st.lists(st.floats(0.0, 40 * DAY_S), min_size=1, max_size=60))
def test_a_typical_week_is_seven_days_of_the_trace_with_a_load_like_its_own(arrivals: list[float]) -> None:
    made = world(*(job(f"j{k}", at, 100.0 + k) for k, at in enumerate(sorted(arrivals))))
    week = typical_week(made)
    first, last = (int(made.jobs[k].arrival_s // DAY_S) for k in (0, -1))
    if last - first < 7:
        assert week == made
        return

    def asked(start: int) -> float:
        return sum(each.duration_s for each in made.jobs if start <= each.arrival_s // DAY_S < start + 7)

    mean = 7 * sum(each.duration_s for each in made.jobs) / (last - first + 1)
    found = sum(each.duration_s for each in week.jobs)
    assert abs(found - mean) == pytest.approx(min(abs(asked(day) - mean) for day in range(first, last - 5)))
    assert set(week.jobs) <= set(made.jobs)


def test_the_first_screen_answers_yes_or_no_how_many_and_who(answers: dict[str, WhatIfAnswer]) -> None:
    for name, answer in answers.items():
        sentences, _ = verdict(answer)
        text = " ".join(sentences)
        assert text.split(":")[0] in ("Yes", "No", "Cannot tell")
        assert " of 4 GPUs " in text
        assert "of the jobs would end over 10% later" in text
        assert ("Jobs on several GPUs " in text) == (name == "gangs")  # what if they suffer more


def test_every_queue_is_told_in_words() -> None:
    assert set(COMMON_QUEUES) < set(ALL_QUEUES)
    texts = [queue_text(record) for record in ALL_QUEUES]
    assert all(texts)
    assert len(set(texts)) == len(texts)


def test_the_answer_is_over_months_at_loads_like_these_weeks_once_all_loads_are_replayed(
    answers: dict[str, WhatIfAnswer],
) -> None:
    answer = answers["busy"]
    change = answer.over_loads["fifo-easy"]
    sentences, _ = verdict(answer)
    assert change.interval.population.startswith("mean over periods at loads like these weeks (")
    assert "over periods at loads like these weeks" in sentences[0]
    assert change_text(change) in sentences[0]
    # One stretched replay is missing: nothing is said of other loads.
    inputs = answer.inputs.replays
    tasks = [ReplayTask(scheduler=one, load=load) for one in (ALONE, SHARED) for load in (None, 0.5, 0.9)]
    results = results_of(inputs, run_replays(inputs, tasks, Runner()))
    assert change_over_loads(answer.inputs.worlds, results, ALONE, SHARED, (0.5, 0.9)) == change
    assert change_over_loads(answer.inputs.worlds, results[:-1], ALONE, SHARED, (0.5, 0.9)) is None
    told, _ = verdict(replace(answer, over_loads={}))
    assert "of a load like" not in told[0]
    assert "loads like these weeks" not in told[0]


def test_who_pays_is_named_by_the_group_that_is_hit_hardest_or_by_the_run_time_of_most() -> None:
    def group(kind: str, name: str, jobs: int, later: int) -> JobGroup:
        return JobGroup(kind=kind, name=name, jobs=jobs, later=later, sooner=0)

    every = group("all", "all jobs", 100, 10)
    alike = [every, group("run time", "under 10 min", 40, 3), group("run time", "1 to 10 h", 60, 7)]
    end = "of the jobs would end over 10% later"
    assert later_text(alike) == f"10.0% {end} (most of them of run time 1 to 10 h), 0.0% as much sooner."
    halves = [every, group("run time", "under 10 min", 50, 5), group("run time", "1 to 10 h", 50, 5)]
    assert later_text(halves) == f"10.0% {end}, 0.0% as much sooner."
    assert (
        later_text([*alike, group("user", "u1", 10, 8)])
        == f"10.0% {end} (80% of those of user u1), 0.0% as much sooner."
    )
    assert later_text([]) == ""
