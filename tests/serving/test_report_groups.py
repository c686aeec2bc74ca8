"""Reports that wait are stored together, and wait for a store that is away."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from interfere.errors import CancelledError, UnavailableError
from interfere.records import ObservationAnswer, ObservationResult, Progress, Reported
from interfere.serving import servicer
from interfere.serving.servicer import ReportGroups
from interfere.time_budget import interruptible
from tests.serving.test_observations import window
from tests.waiting import PATIENCE_S, wait_until


class Disk:
    """A store whose writes wait until they are let go on, and fail as `fails` says."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.may_write, self.is_writing = threading.Event(), threading.Event()
        self.fails: Callable[[Sequence[Reported]], None] = lambda _: None

    def write(self, reported: Sequence[Reported]) -> list[ObservationAnswer]:
        """Store observations."""
        self.is_writing.set()
        assert self.may_write.wait(PATIENCE_S)
        self.fails(reported)
        self.groups.append([each.observation_id for each in reported])
        return [ObservationAnswer(observation_id=name, result=ObservationResult.APPLIED) for name in self.groups[-1]]


@pytest.fixture
def disk() -> Disk:
    return Disk()


def ids(answers: Sequence[ObservationAnswer]) -> list[str]:
    return [answer.observation_id for answer in answers]


def report(*names: str) -> list[Progress]:
    return [window(name, "infer", "stream", slowdown=1.5) for name in names]


@contextmanager
def waiting_reports(disk: Disk, *reports: Sequence[Progress]) -> Iterator[list[Future[tuple[ObservationAnswer, ...]]]]:
    """Let one report be written, and the others come one after another meanwhile."""
    groups = ReportGroups(disk.write)
    with ThreadPoolExecutor(len(reports)) as pool:
        futures = [pool.submit(groups.observe, reports[0], PATIENCE_S)]
        assert disk.is_writing.wait(PATIENCE_S)
        for k, each in enumerate(reports[1:]):
            futures.append(pool.submit(groups.observe, each, PATIENCE_S))
            wait_until(lambda k=k: len(groups._waiting) == k + 2)  # type: ignore[misc]
        yield futures
        disk.may_write.set()


def test_reports_that_wait_are_written_together_in_their_order_and_each_gets_its_answers(disk: Disk) -> None:
    with waiting_reports(disk, report("a"), report("b", "c"), report(), report("d")) as futures:
        disk.may_write.set()
        assert [ids(future.result()) for future in futures] == [["a"], ["b", "c"], [], ["d"]]
    assert disk.groups == [["a"], ["b", "c", "d"]]


def test_a_group_is_no_larger_than_a_large_report(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servicer, "MAX_GROUP", 2)
    with waiting_reports(disk, report("a"), report("b", "c", "d"), report("e"), report("f"), report("g")) as futures:
        disk.may_write.set()
        assert [len(future.result()) for future in futures] == [1, 3, 1, 1, 1]
    assert disk.groups == [["a"], ["b", "c", "d"], ["e", "f"], ["g"]]


def test_a_report_that_cannot_be_written_harms_no_other(disk: Disk) -> None:
    def fail(reported: Sequence[Reported]) -> None:
        if "bad" in [each.observation_id for each in reported]:
            raise ValueError("a bug")

    disk.fails = fail
    with waiting_reports(disk, report("a"), report("b"), report("bad"), report("c")) as futures:
        disk.may_write.set()
        assert isinstance(futures[2].exception(PATIENCE_S), ValueError)
        assert [ids(futures[k].result()) for k in (0, 1, 3)] == [["a"], ["b"], ["c"]]
    assert disk.groups == [["a"], ["b"], ["c"]]


def test_a_report_whose_caller_gave_up_is_not_written(disk: Disk) -> None:
    groups, gone = ReportGroups(disk.write), threading.Event()

    def give_up() -> None:
        if gone.is_set():
            raise CancelledError("nobody waits")

    def observe() -> None:
        with interruptible(give_up), pytest.raises(CancelledError):
            groups.observe(report("b"), PATIENCE_S)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(groups.observe, report("a"), PATIENCE_S)
        assert disk.is_writing.wait(PATIENCE_S)
        second = pool.submit(observe)
        wait_until(lambda: len(groups._waiting) == 2)
        gone.set()
        second.result(PATIENCE_S)
        disk.may_write.set()
        assert ids(first.result(PATIENCE_S)) == ["a"]
    assert ids(groups.observe(report("c"), PATIENCE_S)) == ["c"]
    assert disk.groups == [["a"], ["c"]]


def test_reports_wait_for_a_store_that_is_away_and_no_longer_than_their_callers(disk: Disk) -> None:
    is_away = threading.Event()
    is_away.set()

    def fail(_: Sequence[Reported]) -> None:
        if is_away.is_set():
            raise UnavailableError("the store is away", remedy="wait", retry_after_s=0.02)

    disk.fails = fail
    disk.may_write.set()
    groups = ReportGroups(disk.write)
    with ThreadPoolExecutor(2) as pool:
        patient = pool.submit(groups.observe, report("a"), PATIENCE_S)
        with pytest.raises(UnavailableError, match="not confirmed as stored: the store is away"):
            groups.observe(report("b"), 0.3)
        assert not patient.done()
        is_away.clear()
        assert ids(patient.result(PATIENCE_S)) == ["a"]
    assert disk.groups == [["a"]]


def test_a_full_disk_is_told_at_once(disk: Disk) -> None:
    def fail(_: Sequence[Reported]) -> None:
        raise UnavailableError("the disk is full", remedy="free it")

    disk.fails = fail
    disk.may_write.set()
    with pytest.raises(UnavailableError, match="the disk is full"):
        ReportGroups(disk.write).observe(report("a"), PATIENCE_S)
