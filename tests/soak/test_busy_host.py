"""A busy host: ten busy loops a core and workers that are stopped at random let no Match time out for good.

`SOAK_SECONDS` says how long: 600 by default in `make soak`, 10 elsewhere.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.errors import InterfereError
from interfere.records import ActionKind, Device, Job, Plan, Snapshot
from interfere.store.store import SqliteStore
from tests.models import DEVICE_TYPE, WORKLOADS
from tests.serving.workers.test_fork_server import descendants
from tests.soak.processes import serving_with
from tests.waiting import PATIENCE_S, wait_until

SECONDS = float(os.environ.get("SOAK_SECONDS", "600" if "SOAK_ROUNDS" in os.environ else "10"))
LOOPS_PER_CORE = 10
SCOPES, JOBS, DEVICES = 3, 20, 8
DEADLINE_S = 120.0
ANSWERED = 0.99  # of all Matches
STARTS = (ActionKind.START_ALONE, ActionKind.START_SHARED)
TOLD = "no processor time"


@contextmanager
def busy_loops() -> Iterator[None]:
    """Programs that want every core ten times over."""
    count = LOOPS_PER_CORE * len(os.sched_getaffinity(0))
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def stopping(server: int) -> Iterator[None]:
    """Stop a random worker of a server for up to some seconds, again and again."""
    over, rng = threading.Event(), random.Random(0)
    (fork_server,) = [each for each in descendants(server) if descendants(each)]

    def stop() -> None:
        while not over.is_set():
            workers = sorted(descendants(fork_server))
            if not workers:
                continue
            handle = os.pidfd_open(rng.choice(workers))
            try:
                signal.pidfd_send_signal(handle, signal.SIGSTOP)
                over.wait(rng.uniform(0.1, 5.0))
                signal.pidfd_send_signal(handle, signal.SIGCONT)
            except ProcessLookupError:
                pass  # it was replaced
            finally:
                os.close(handle)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Scheduler(threading.Thread):
    """Sends one snapshot of a scope after another; the jobs never start, so that promises stand until they expire."""

    def __init__(self, address: str, scope: str, over: threading.Event) -> None:
        super().__init__()
        self._address, self._scope, self._over = address, scope, over
        self.plans: list[tuple[Snapshot, Plan]] = []
        self.failures: list[str] = []
        self.waited_s: list[float] = []

    def snapshot(self, number: int) -> Snapshot:
        """The snapshot of a round: the same jobs and devices at a later time."""
        return Snapshot(
            scope=self._scope,
            snapshot_id=str(number),
            now_s=float(number),
            pending=tuple(
                Job(id=f"j{k}", workload=WORKLOADS[k % 4], remaining_s=100.0 + 7.3 * k, weight=1.0 + k / 7)
                for k in range(JOBS)
            ),
            devices=tuple(Device(id=f"d{k}", type=DEVICE_TYPE) for k in range(DEVICES)),
        )

    def run(self) -> None:
        """Ask until it is over."""
        number = 0
        with PolicyClient(self._address, timeout_s=DEADLINE_S) as client:
            while not self._over.is_set():
                number += 1
                start_s = time.monotonic()
                try:
                    self.plans.append((self.snapshot(number), client.match(self.snapshot(number))))
                except InterfereError as error:
                    self.failures.append(error.one_line)
                self.waited_s.append(time.monotonic() - start_s)


def starts(plan: Plan) -> dict[str, str]:
    """The devices that jobs start on."""
    return {action.job_id: action.device_id for action in plan.actions if action.kind in STARTS}


@pytest.mark.timeout(3_600)
def test_a_busy_host_answers_every_match_and_plans_again_afterwards(model_folder: Path, tmp_path: Path) -> None:
    with serving_with(tmp_path, model=model_folder, decision_workers=2) as served:
        wait_until(lambda: len(descendants(served.process.pid)) == 4, "the fork server and three workers")
        over = threading.Event()
        schedulers = [_Scheduler(served.address, f"s{k}", over) for k in range(SCOPES)]
        with busy_loops(), stopping(served.process.pid):
            for scheduler in schedulers:
                scheduler.start()
            time.sleep(SECONDS)
            over.set()
            for scheduler in schedulers:
                scheduler.join()
        plans = [pair for scheduler in schedulers for pair in scheduler.plans]
        failures = [text for scheduler in schedulers for text in scheduler.failures]
        waited_s = sorted(each for scheduler in schedulers for each in scheduler.waited_s)
        greedy = [plan for _, plan in plans if TOLD in plan.stopped_by]
        asked = len(plans) + len(failures)
        print(
            f"{asked} Matches in {SECONDS:g} s: {len(plans) - len(greedy)} planned by a worker, {len(greedy)} greedy "
            f"and told, {len(failures)} failed {sorted(set(failures))}; half within {waited_s[asked // 2]:.2f} s, all "
            f"within {waited_s[-1]:.1f} s"
        )
        assert len(plans) >= ANSWERED * asked
        # 1. After the load a worker plans again.
        with PolicyClient(served.address, timeout_s=PATIENCE_S) as client:
            after = []

            def planned() -> bool:
                after.append(client.match(schedulers[0].snapshot(100_000 + len(after))))
                return TOLD not in after[-1].stopped_by

            wait_until(planned, "a worker plans")
            # 2. Every answer is the decision that is stored, and no device is promised to more than a group of two.
            for snapshot, plan in plans:
                assert client.match(snapshot) == plan
                devices = list(starts(plan).values())
                assert max(map(devices.count, devices), default=0) <= 2
        # 3. While promises stand, later plans repeat them.
        for scheduler in schedulers:
            for (earlier, before), (later, plan) in zip(scheduler.plans, scheduler.plans[1:], strict=False):
                standing = {
                    action.job_id: action.device_id
                    for action in before.actions
                    if action.kind in STARTS and action.promised_by_s > later.now_s > earlier.now_s
                }
                assert standing.items() <= starts(plan).items()
    store = SqliteStore(tmp_path / "store.db", shared=True)
    try:
        assert {store.ledgers.read(scheduler.plans[0][0].scope).revision > 0 for scheduler in schedulers} == {True}
    finally:
        store.close()
