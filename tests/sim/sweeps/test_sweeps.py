"""Sweeps: the same results wherever they run, kept when interrupted, gone on with later."""

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.errors import InvalidInputError, UnfitError
from interfere.sim.beliefs import true_beliefs
from interfere.sim.sweeps.changes import change_over_days, change_over_traces
from interfere.sim.sweeps.running import in_processes, in_this_process, run_sweep
from interfere.sim.sweeps.saved_results import RESULTS_FILE, SavedResults
from interfere.sim.sweeps.tasks import Scenario, SweepInputs, SweepResult, SweepTask, run_task
from interfere.sim.uncertainty import NoInterval, mean_over_traces
from interfere.sim.world import World
from tests.sim.small_worlds import NAMES, USUAL, job, world
from tests.waiting import PATIENCE_S, wait_until

POLICIES = ("fifo+easy", "fifo+easy+greedy", "tiresias+first-fit", "tiresias+first-fit+greedy")


def trace(seed: int, jobs: int = 80) -> World:
    """Jobs over about six days on two devices."""
    rng = np.random.default_rng(seed)
    arrivals = np.sort(rng.uniform(0, 6 * 86_400, jobs)).tolist()
    durations = rng.lognormal(8.5, 1.0, jobs).tolist()
    rows = zip(arrivals, durations, rng.choice(NAMES, jobs).tolist(), strict=True)
    return replace(world(*(job(f"j{k}", *row) for k, row in enumerate(rows)), count=2), name=f"w{seed}")


def inputs(*seeds: int) -> SweepInputs:
    scenario = Scenario(name="measured", truth=USUAL, beliefs=true_beliefs(USUAL))
    return SweepInputs(worlds=tuple(map(trace, seeds or (0, 1))), scenarios=(scenario,))


def tasks() -> list[SweepTask]:
    return [SweepTask(policy=policy, world=k, load=load) for policy in POLICIES for k in (0, 1) for load in (None, 0.9)]


def without_time(results: Sequence[SweepResult]) -> list[SweepResult]:
    return [replace(result, cpu_s=0.0) for result in results]


def test_processes_give_what_one_process_gives_in_the_order_of_the_tasks() -> None:
    here = run_sweep(inputs(), tasks())
    there = run_sweep(inputs(), tasks(), engine=in_processes(2))
    assert [result.task for result in here.results] == tasks()
    assert without_time(here.results) == without_time(there.results)
    assert not here.interrupted
    assert [result.load for result in here.results if result.task.load] == pytest.approx([0.9] * 8)


def test_inputs_tasks_and_results_travel_between_processes() -> None:
    task = tasks()[1]
    there = pickle.loads(pickle.dumps((inputs(), task)))
    assert without_time([run_task(*there)]) == without_time([run_task(inputs(), task)])


def test_an_interrupted_sweep_keeps_what_is_done_and_goes_on_from_there(tmp_path: Path) -> None:
    ran: list[SweepTask] = []

    def interrupted_after_five(inputs: SweepInputs, tasks: Sequence[SweepTask]) -> Iterator[SweepResult]:
        for k, result in enumerate(in_this_process(inputs, tasks)):
            if k == 5:
                raise KeyboardInterrupt
            yield result

    def counting(inputs: SweepInputs, tasks: Sequence[SweepTask]) -> Iterator[SweepResult]:
        ran.extend(tasks)
        return in_this_process(inputs, tasks)

    notes: list[str] = []
    first = run_sweep(inputs(), tasks(), engine=interrupted_after_five, folder=tmp_path, report=notes.append)
    assert (first.interrupted, len(first.results)) == (True, 5)
    assert notes[0].startswith("1 of 16: w0 load ")
    assert notes[0].endswith(" left")
    with (tmp_path / RESULTS_FILE).open("a") as file:
        file.write('{"task": {"policy": "fifo')  # a write that was cut off
    second = run_sweep(inputs(), tasks(), engine=counting, folder=tmp_path)
    assert (second.resumed, second.interrupted, ran) == (5, False, tasks()[5:])
    assert without_time(second.results) == without_time(run_sweep(inputs(), tasks()).results)
    third = run_sweep(inputs(), tasks(), folder=tmp_path)
    assert (third.resumed, third.results) == (16, second.results)


def test_an_interrupt_while_a_result_is_kept_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add = SavedResults.add

    def interrupted(saved: SavedResults, result: SweepResult) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        add(saved, result)

    with monkeypatch.context() as patched:
        patched.setattr(SavedResults, "add", interrupted)
        first = run_sweep(inputs(), tasks(), folder=tmp_path)
    assert (first.interrupted, len(first.results)) == (True, 1)
    assert run_sweep(inputs(), tasks(), folder=tmp_path).resumed == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_before_the_first_result_is_raised(tmp_path: Path) -> None:
    def interrupted(inputs: SweepInputs, tasks: Sequence[SweepTask]) -> Iterator[SweepResult]:
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        run_sweep(inputs(), tasks(), engine=interrupted, folder=tmp_path)


def test_results_of_another_trace_or_truth_are_never_mixed_in(tmp_path: Path) -> None:
    run_sweep(inputs(0), [SweepTask(policy="fifo+easy")], folder=tmp_path)
    for other in (inputs(1), replace(inputs(0), seed=1), replace(inputs(0), counted_cap=1.4)):
        with pytest.raises(InvalidInputError, match="results of another trace") as raised:
            run_sweep(other, [SweepTask(policy="fifo+easy")], folder=tmp_path)
        assert RESULTS_FILE in str(raised.value.value)
    slower = replace(inputs(0).scenarios[0], truth=replace(USUAL, table=USUAL.table + 1))
    assert replace(inputs(0), scenarios=(slower,)).digest() != inputs(0).digest()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnfitError, match="results cannot be kept"):
        run_sweep(inputs(0), [SweepTask(policy="fifo+easy")], folder=tmp_path / "file" / "below")


INTERRUPTED = """
import sys
from pathlib import Path
from interfere.sim.sweeps.running import in_processes, run_sweep
from interfere.sim.sweeps.tasks import SweepTask
from tests.sim.sweeps.test_sweeps import inputs

tasks = [SweepTask(policy="fifo+easy+greedy", load=0.5 + k / 1000) for k in range(4000)]
folder, report = Path(sys.argv[1]), lambda text: print(text, flush=True)
ran = run_sweep(inputs(0), tasks, engine=in_processes(1), folder=folder, report=report)
print("interrupted" if ran.interrupted else "done", len(ran.results), flush=True)
"""


def test_an_interrupt_ends_the_processes_of_a_sweep(tmp_path: Path) -> None:
    """The signal reaches the parent alone, as with `kill -INT`: its processes end with it all the same."""
    running = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert running.stdout is not None
    try:
        running.stdout.readline()
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=PATIENCE_S)
    finally:
        running.kill()
    assert output.splitlines()[-1].startswith("interrupted ")
    done = int(output.split()[-1])
    kept = [json.loads(line) for line in (tmp_path / RESULTS_FILE).read_text().splitlines()[1:]]
    assert len(kept) == done
    assert 1 <= done < 4000
    wait_until(lambda: not _group_is_alive(running.pid), "the processes have ended")


def _group_is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_changes_over_days_and_over_traces_have_their_own_populations() -> None:
    results = run_sweep(inputs(), [replace(task, load=None) for task in tasks()]).results
    shared = [result for result in results if result.task.policy == "fifo+easy+greedy"]
    alone = [result for result in results if result.task.policy == "fifo+easy"]
    days, traces = change_over_days(shared, alone), change_over_traces(shared, alone, "made traces")
    assert days is not None
    assert traces is not None
    by_hand = [one.mean_completion_s / other.mean_completion_s - 1 for one, other in zip(shared, alone, strict=True)]
    assert traces.mean == pytest.approx(np.mean(by_hand))
    assert traces.interval.population == "mean over 2 made traces"
    assert not traces.interval.is_known  # two traces say nothing about others
    both = sum(one.mean_completion_s * one.jobs for one in shared) / sum(o.mean_completion_s * o.jobs for o in alone)
    assert days.mean == pytest.approx(both - 1)
    assert days.interval.missing is NoInterval.FEW_DAYS
    assert days.interval.population == "mean over periods like these 2 (12 recorded days)"


def test_days_stay_those_recorded_however_arrivals_are_stretched() -> None:
    ran = run_sweep(inputs(0), [SweepTask(policy="fifo+easy", load=load) for load in (None, 0.1)]).results
    assert len(ran[0].completion_s_by_day) == len(ran[1].completion_s_by_day) == 6
    for result in ran:
        assert sum(result.completion_s_by_day) == pytest.approx(result.mean_completion_s * result.jobs)


def test_the_interval_over_traces_covers_the_mean_of_all_traces() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        interval = mean_over_traces((-0.2 + 0.05 * rng.standard_normal(6)).tolist()).interval
        covered += interval.low <= -0.2 <= interval.high
    assert 0.86 <= covered / 400 <= 0.94
