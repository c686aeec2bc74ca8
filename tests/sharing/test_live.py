"""Processes that share a device live: stages, turns, and results that do not depend on the others."""

import os
import pickle
import threading
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

from interfere import sharing
from interfere.errors import InvalidInputError
from interfere.sharing import live
from interfere.sharing.device_turns import LIVE_SCHEDULER, DeviceMember
from interfere.sharing.live import Session
from interfere.sharing.operator_interception import InterceptedCalls
from interfere.timeline.priority_scheduler import FillingRule, PriorityGapFillingScheduler
from tests.sharing import sample_workloads
from tests.sharing.live_members import ForkedMember, spin
from tests.waiting import wait_until

ANY = PriorityGapFillingScheduler(rule=FillingRule.ANY)


def run_session(path: Path, steps: int, priority: str = "high") -> tuple[Session, list[float]]:
    losses: list[float] = []
    step = sample_workloads.training(losses).build()
    with Session(priority, path, measured_rounds=3) as session:
        for _ in session.steps(range(steps)):
            step(time.sleep)
    return session, losses


def test_a_session_measures_first_and_then_takes_turns_by_segments(tmp_path: Path) -> None:
    turns: list[float] = []
    step = sample_workloads.waiting().build()
    with Session("high", tmp_path / "core", measured_rounds=3) as session:
        take_turn = session.member.take_turn

        def count(run_s: float) -> None:
            turns.append(run_s)
            take_turn(run_s)

        session.member.take_turn = count  # type: ignore[method-assign]
        for k, _ in enumerate(session.steps(range(8))):
            assert session.is_measured == (k >= 5)  # two steps warm up, three are measured
            step(time.sleep)
            assert not session.member.holds_turn  # it waits now: the turn is free
    assert turns[:10] == [0.0] * 10  # unknown operators are tried at once, each by itself
    assert 3 <= len(turns[10:]) <= 6  # both products of a step are one segment, unless the machine stalls between them
    assert all(run_s > 0 for run_s in turns[10:])


class CountedTurns:
    """Counts the turns that a session takes, by the predicted run times that it asks with."""

    def __init__(self, session: Session) -> None:
        self.asked_s: list[float] = []
        take_turn = session.member.take_turn

        def count(run_s: float) -> None:
            self.asked_s.append(run_s)
            take_turn(run_s)

        session.member.take_turn = count  # type: ignore[method-assign]

    def since(self, start: int) -> int:
        return len(self.asked_s) - start


@pytest.mark.parametrize(
    ("priority", "scheduler", "is_one_call"),
    [("high", LIVE_SCHEDULER, True), ("high", ANY, True), ("low", LIVE_SCHEDULER, True), ("low", ANY, False)],
)
def test_a_backward_pass_is_one_call_but_of_a_low_job_that_nobody_interrupts(
    tmp_path: Path, priority: str, scheduler: PriorityGapFillingScheduler, *, is_one_call: bool
) -> None:
    weights, inputs = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4)
    with Session(priority, tmp_path / "core", scheduler) as session:
        loss = (inputs @ weights).sum()
        turns = CountedTurns(session)
        loss.backward()
    assert weights.grad is not None
    assert turns.since(0) == 1 if is_one_call else turns.since(0) > 1


@pytest.mark.parametrize("pauses_inside", [True, False])
@pytest.mark.parametrize("scheduler", [LIVE_SCHEDULER, ANY])
def test_the_gap_between_two_steps_is_measured(
    tmp_path: Path, scheduler: PriorityGapFillingScheduler, *, pauses_inside: bool
) -> None:
    """A job that waits at the end of each step, or before it asks for the next one, publishes how long."""
    weights = torch.ones(8, 8)
    with Session("low", tmp_path / "core", scheduler, measured_rounds=3) as session:
        for _ in session.steps(range(7)):
            if not pauses_inside:
                time.sleep(0.01)
            weights @ weights
            if session.is_measured:
                assert session.member._member.gap_count == 3
                assert min(session.member._member.gaps_s[:3]) >= 0.01
            if pauses_inside:
                time.sleep(0.01)
    assert session.is_measured


def test_a_step_that_takes_another_way_is_one_segment_and_the_next_one_is_as_planned(tmp_path: Path) -> None:
    small, large = torch.ones(8, 8), torch.ones(16, 16)

    def step(*, strays: bool) -> None:
        small @ small
        if strays:
            small + small
        large @ large
        time.sleep(5e-4)
        small * small
        time.sleep(5e-4)

    with Session("high", tmp_path / "core", measured_rounds=5) as session:
        for _ in range(7):
            step(strays=False)
            session.end_step()
        assert session.is_measured
        turns = CountedTurns(session)
        counts = list[int]()
        for strays in (False, True, False):
            before = len(turns.asked_s)
            step(strays=strays)
            assert session.member.holds_turn == strays, "as planned the turn is free after the last call"
            session.end_step()
            assert not session.member.holds_turn
            counts.append(turns.since(before))
    assert counts == [2, 1, 2]


class Model(torch.nn.Module):
    """Ten layers, which fail where they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(10)))
        self.fails = False

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.layers(inputs)
        if self.fails:
            raise OSError("the disk is gone")
        return outputs


def trained(path: Path | None, steps: int, *, during: Callable[[int, Model], None] = lambda _, __: None) -> list[float]:
    """The losses of a training, by a member of high priority where a device is given."""
    torch.manual_seed(0)
    model, losses = Model(), list[float]()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    inputs = torch.randn(4, 8)

    def step(k: int) -> None:
        during(k, model)
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    if path is None:
        for k in range(steps):
            step(k)
        return losses
    with Session("high", path, measured_rounds=3) as session:
        for k, _ in enumerate(session.steps(range(steps))):
            step(k)
        assert session.is_measured
        assert torch.overrides._get_current_function_mode() is session._calls
    return losses


@pytest.fixture
def one_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is one segment, whatever gaps a busy machine makes."""
    monkeypatch.setattr(live, "GAP_OF_CALLS_S", 1e6)
    monkeypatch.setattr(live, "SEGMENT_OF_CALLS_S", 1e6)


@pytest.mark.usefixtures("one_segment")
def test_passes_and_optimizers_in_which_no_segment_begins_are_not_intercepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[int]()

    def count(k: int, _: Model) -> None:
        calls.append(seen[0])

    seen, handle = [0], InterceptedCalls.__torch_function__

    def counted(self: InterceptedCalls, *args: Any) -> Any:
        seen[0] += 1
        return handle(self, *args)

    monkeypatch.setattr(InterceptedCalls, "__torch_function__", counted)
    assert trained(tmp_path / "core", 10, during=count) == trained(None, 10)
    measured, shared = calls[4] - calls[3], calls[9] - calls[8]
    assert shared <= measured - 10 - 20, "not those of ten layers and of an optimizer of twenty parameters"
    assert torch.overrides._get_current_function_mode() is None


def calls_of(session: Session, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The functions that the session looks at from now on."""
    looked_at, handle = list[Any](), InterceptedCalls.__torch_function__

    def counted(self: InterceptedCalls, func: Any, *args: Any) -> Any:
        looked_at.append(func)
        return handle(self, func, *args)

    monkeypatch.setattr(InterceptedCalls, "__torch_function__", counted)
    return looked_at


@pytest.mark.usefixtures("one_segment")
def test_calls_between_forward_passes_are_not_intercepted_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One layer is used ten times in a step: the quiet calls end with its last pass, not with its first."""
    layer, other = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def step() -> torch.Tensor:
        hidden = torch.ones(4, 8) + 1
        for _ in range(5):
            hidden = layer(hidden).relu() + other(hidden)
        return layer(hidden).relu().sum()

    expected = step()
    with Session("high", tmp_path / "core", measured_rounds=3) as session:
        for _ in range(5):
            step()
            session.end_step()
        assert session.is_measured
        looked_at = calls_of(session, monkeypatch)
        results = list[torch.Tensor]()
        for _ in range(2):
            results.append(step())
            assert not session.member.holds_turn
            session.end_step()
    assert all(torch.equal(result, expected) for result in results)
    assert looked_at.count(torch.Tensor.relu) == 2, "that after the last pass, in each step"
    assert len(looked_at) <= 2 * 5


@pytest.mark.usefixtures("one_segment")
def test_a_segment_that_an_optimizer_ends_is_over_with_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = torch.nn.Linear(8, 8)
    optimizer = torch.optim.Adam(layer.parameters())

    def step() -> None:
        layer(torch.ones(4, 8)).sum().backward()
        optimizer.step()

    with Session("high", tmp_path / "core", measured_rounds=3) as session:
        for _ in range(5):
            step()
            session.end_step()
        looked_at = calls_of(session, monkeypatch)
        for _ in range(2):
            layer(torch.ones(4, 8)).sum().backward()
            assert session.member.holds_turn
            before = len(looked_at)
            optimizer.step()
            assert {func.namespace for func in looked_at[before:]} == {"profiler"}
            assert not session.member.holds_turn
            session.end_step()


class CountingMode(torch.overrides.TorchFunctionMode):
    """A mode of the program's own."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("one_segment")
def test_a_mode_of_the_program_that_begins_among_quiet_calls_stays_where_it_is(tmp_path: Path) -> None:
    layer, own = torch.nn.Linear(8, 8), CountingMode()

    def step(*, with_mode: bool) -> None:
        hidden = torch.ones(4, 8)
        for k in range(9):
            hidden = layer(hidden)
            if with_mode and k == 4:
                own.__enter__()
        if with_mode:
            before = own.calls
            hidden + 1
            assert own.calls == before + 1
            own.__exit__(None, None, None)
        hidden.sum()

    with Session("high", tmp_path / "core", measured_rounds=3) as session:
        for _ in range(5):
            step(with_mode=False)
            session.end_step()
        for with_mode in (False, True, False):
            step(with_mode=with_mode)
            assert session.member.holds_turn == with_mode, "then the segment ends with the step"
            session.end_step()
            assert torch.overrides._get_current_function_mode() is session._calls
            assert not session.member.holds_turn
    assert torch.overrides._get_current_function_mode() is None


@pytest.mark.usefixtures("one_segment")
def test_models_can_be_copied_and_saved_while_they_share_and_may_fail(tmp_path: Path) -> None:
    copies = list[Model]()

    def copy_and_fail(k: int, model: Model) -> None:
        if k == 7:
            copies.append(deepcopy(model))
            copies.append(pickle.loads(pickle.dumps(model)))
            model.fails = True
            with pytest.raises(OSError, match="disk"):
                model(torch.ones(1, 8))
            model.fails = False
            with torch.device("cpu"):  # a mode of the program's own on top
                model(torch.ones(1, 8))

    assert trained(tmp_path / "core", 10, during=copy_and_fail) == trained(None, 10)
    assert torch.equal(*(each(torch.ones(1, 8)) for each in copies))


def test_a_call_that_fails_holds_its_turn_to_the_end_of_the_step_at_most(tmp_path: Path) -> None:
    def step(*, fails: bool) -> None:
        torch.ones(2) + 1
        if fails:
            torch.ones(2) @ torch.ones(3)
        torch.ones(2) * 2

    with Session("high", tmp_path / "core", measured_rounds=3) as session:
        for _ in range(5):
            step(fails=False)
            session.end_step()
        with pytest.raises(RuntimeError, match="size"):
            step(fails=True)
        session.end_step()
        assert not session.member.holds_turn


def test_a_job_computes_the_same_in_turns_as_alone(tmp_path: Path) -> None:
    def busy(member: DeviceMember, report: Callable[[str], None]) -> None:
        while True:
            member.take_turn(1e-4)
            spin(1e-4)
            member.end_turn(())
            report("turn")

    alone = run_session(tmp_path / "alone", 8)[1]
    with ForkedMember(tmp_path / "core", 0, ANY, busy) as other:
        wait_until(lambda: other.reports)
        shared = run_session(tmp_path / "core", 8)[1]
        turns = len(other.reports)
        wait_until(lambda: len(other.reports) > turns, "the other goes on after the session")
    assert shared == alone


def test_a_job_that_fails_leaves_the_device(tmp_path: Path) -> None:
    def fail() -> None:
        step = sample_workloads.failing().build()
        with Session("high", tmp_path / "core") as session:
            for _ in session.steps(range(9)):
                step(time.sleep)

    with pytest.raises(OSError, match="disk"):
        fail()
    with DeviceMember(tmp_path / "core", 0, ANY) as member:
        member.take_turn(0.0)
        assert member.holds_turn


def test_a_low_job_runs_in_the_idle_class_and_a_high_one_does_not(tmp_path: Path) -> None:
    """So do the threads that it has, as those of PyTorch's operators."""
    is_over = threading.Event()
    helper = threading.Thread(target=is_over.wait)
    helper.start()
    threads = (threading.get_native_id(), helper.native_id or 0)

    def classes() -> set[int]:
        return {os.sched_getscheduler(thread) for thread in threads}

    try:
        before = classes()
        with Session("high", tmp_path / "core"):
            assert classes() == before
        with Session("low", tmp_path / "core", ANY):
            assert classes() == before, "nobody takes the core from it"
        with Session("low", tmp_path / "core"):
            assert classes() == {os.SCHED_IDLE}
        assert classes() == (before if os.getuid() == 0 else {os.SCHED_IDLE})
    finally:
        is_over.set()
        helper.join()


def test_processes_join_by_the_name_of_a_device() -> None:
    with sharing.join(priority="low", device="test-join") as session:
        assert (torch.ones(2) + 1).sum().item() == 4
        assert session.member.priority == 0
    with pytest.raises(InvalidInputError, match="high, low"):
        sharing.join(priority="urgent")


def test_a_forked_child_is_no_member(tmp_path: Path) -> None:
    """Workers of a data loader inherit the interception, and must not end or take turns of their parent."""
    with Session("high", tmp_path / "core") as session:
        torch.ones(2) + 1
        session.member.take_turn(1.0)
        child = os.fork()
        if child == 0:
            os._exit(0 if (torch.ones(2) + 1).sum().item() == 4 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert session.member.holds_turn
        session.member.end_turn(())
