"""kill -9 of the deciding controller at random moments, while clocks differ and the API server has faults of its own.

Faults: it restarts, cuts watches, answers 410 to them and 409 to writes, and wants another token. Every pod is ungated
and schedulable within its window and ten seconds, is bound once, none is lost, and most are placed by a decision: a
dead leader costs its lease, not the window.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.config import Settings
from interfere.serving.adapters.kubernetes import names
from interfere.serving.server import RunningServer, start_server
from tests.serving.adapters.kubernetes.conftest import SHIPPED, WORKLOADS, api_server
from tests.serving.adapters.kubernetes.control_plane.api_server import CLAIM, LEASE, POD, ApiServer
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import DRIVER, pod
from tests.serving.adapters.kubernetes.worlds import two_nodes
from tests.waiting import PATIENCE_S

__all__ = ["api_server"]  # a fixture
ROUNDS = int(os.environ.get("SOAK_ROUNDS", "5"))  # make soak: 50
WINDOW_S, SLACK_S = 20.0, 10.0
LEAST_PLACED = 0.7  # of all pods
SKEWS_S = (0.0, 45.0, -45.0)  # of the clocks of replicas
APP = "from interfere.serving.adapters.kubernetes.command import app; app()"
COMMAND = [sys.executable, "-c", APP]
# gRPC compares its deadlines with the clock of the machine, which is not skewed.
SKEWED = """
import time, types, grpc, grpc._channel
real = time.time
grpc._channel.time = types.SimpleNamespace(**vars(time))
time.time = lambda: real() + %s
"""
CONFIG = f"""
mode = "gate"
cluster = "c"
device_class = "{DRIVER}"
interval_s = 0.5
window_s = {WINDOW_S}
start_s = 10.0
stale_s = 3.0
timeout_s = 10.0
server = "127.0.0.1:%d"
[device_types]
"TEST-GPU" = "cpu-core"
"""


class World:
    """Pods that come and end, two replicas, and what was seen of each pod."""

    def __init__(self, api: ApiServer, folder: Path, policy: RunningServer) -> None:
        self.api, self.scheduler, self.folder, self.policy = api, StandInScheduler(api), folder, policy
        self.config = folder / "kubernetes.toml"
        self.config.write_text(CONFIG % policy.port)
        self.replicas: list[tuple[subprocess.Popen[bytes], Path]] = []  # with their logs
        self.started = self.placed = 0
        self.created_s: dict[str, float] = {}
        self.schedulable_s: dict[str, float] = {}
        self.away_s = self.slowest_start_s = 0.0

    def start(self) -> None:
        """One more replica."""
        skewed = SKEWED % SKEWS_S[self.started % len(SKEWS_S)]
        command = [sys.executable, "-c", skewed + APP, "controller", "--config", str(self.config)]
        self.started += 1
        path = self.folder / f"controller-{self.started}.log"
        with path.open("ab") as log:
            environment = {**os.environ, "KUBECONFIG": str(self.api.kubeconfig)}
            self.replicas.append((subprocess.Popen(command, stdout=log, stderr=log, env=environment), path))

    def leader(self) -> int | None:
        """The replica that holds the lease; None while that is still a dead one."""
        holders = [str(row["spec"].get("holderIdentity")) for row in self.api.rows(LEASE)]
        pids = [f"_{process.pid}_" for process, _ in self.replicas]
        return next((k for k, pid in enumerate(pids) if any(pid in holder for holder in holders)), None)

    def kill_leader(self, lived_s: float) -> None:
        """kill -9 of the replica that decides, once the other lives: a process takes seconds to start on a busy
        machine. `lived_s`: at least so long after it has taken the lease."""
        end_s = time.monotonic() + PATIENCE_S
        while (k := self.leader()) is None:
            assert time.monotonic() < end_s, "nobody takes the lease of a dead leader"
            self.watch(0.2)
        _, log = self.replicas[1 - k]
        begin_s = time.monotonic()
        while b"gate c" not in log.read_bytes():
            assert time.monotonic() < begin_s + PATIENCE_S, log.read_text()
            self.watch(0.2)
        self.slowest_start_s = max(self.slowest_start_s, time.monotonic() - begin_s)
        self.watch(lived_s)
        process, _ = self.replicas.pop(k)
        process.kill()
        process.wait()

    def submit(self, name: str, workload: str, source: str = "dra") -> None:
        self.api.add(POD, pod(name, workload, source=source))
        self.created_s[name] = time.monotonic()

    def watch(self, seconds: float) -> None:
        """Let time pass; note who became schedulable; end pods that ran for two seconds, and delete them with their
        claims, as a Job's time to live does: the stand-in looks at every pod that is there."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            claims = {row["metadata"]["name"] for row in self.api.rows(CLAIM)}
            for row in self.api.rows(POD):
                name, spec = row["metadata"]["name"], row["spec"]
                needs = {each["resourceClaimName"] for each in spec.get("resourceClaims") or ()}
                if not spec.get("schedulingGates") and (needs <= claims or spec.get("nodeName")):
                    self.schedulable_s.setdefault(name, time.monotonic())
                age_s = time.monotonic() - self.schedulable_s.get(name, time.monotonic())
                if row["status"].get("phase") == "Running" and age_s > 2.0:
                    self.placed += row["metadata"]["annotations"].get(names.STATE) == "placed"
                    self.api.delete(POD, "ml", name)
                    for each in needs & claims:
                        self.api.delete(CLAIM, "ml", each)
            time.sleep(0.1)


def fault(world: World, rng: random.Random, k: int) -> None:
    """One of the faults of the API server."""
    kind, api = FAULTS[k % len(FAULTS)], world.api
    if kind == "restart":
        api.down()
        time.sleep(1.5)
        api.up()
        world.away_s = max(world.away_s, 1.5)
    elif kind == "watches are cut":
        api.down()
        api.up()
    elif kind == "token":
        api.rotate_token(f"token-{k}")
    elif kind in ("409", "410"):
        is_write = kind == "409"

        def refuse(request: Any) -> int | None:
            if is_write:
                return 409 if request.method.value in ("PATCH", "POST", "PUT") and rng.random() < 0.3 else None
            return 410 if request.params.get("watch") == "true" else None

        api.kmock.fault = refuse
        if not is_write:  # open watches go on else
            api.down()
            api.up()
        world.watch(2.0)
        api.kmock.fault = lambda request: None


FAULTS = ("none", "restart", "409", "410", "token", "watches are cut")


@pytest.fixture
def policy(tmp_path: Path) -> Iterator[RunningServer]:
    running = start_server(Settings(model=SHIPPED, work=tmp_path / "work", port=0, grace_s=0.5))
    yield running
    running.stop()


def test_every_pod_is_schedulable_in_time_whoever_dies(
    api_server: ApiServer, policy: RunningServer, tmp_path: Path
) -> None:
    rng = random.Random(int(os.environ.get("SOAK_SEED", "0")))
    two_nodes(api_server, "dra")
    world = World(api_server, tmp_path, policy)
    world.scheduler.start(every_s=0.2)
    try:
        for _ in range(2):
            world.start()
        _await_leader(world)
        for k in range(ROUNDS):
            for j in range(rng.randint(1, 3)):
                world.submit(f"p{k}-{j}", rng.choice(WORKLOADS))
            world.watch(rng.uniform(0.0, 2.0))
            fault(world, rng, k)
            world.kill_leader(rng.uniform(0.0, 10.0))
            world.watch(rng.uniform(0.0, 1.0))
            world.start()
        end_s = time.monotonic() + PATIENCE_S
        while api_server.rows(POD) and time.monotonic() < end_s:
            world.watch(1.0)
    finally:
        for replica, _ in world.replicas:
            replica.kill()
            replica.wait()
    log = "".join(path.read_text(errors="replace") for _, path in world.replicas)[-3000:]
    in_time_s = WINDOW_S + SLACK_S + world.away_s + 2 * world.slowest_start_s
    late = {
        name: world.schedulable_s.get(name, float("inf")) - created_s
        for name, created_s in world.created_s.items()
        if world.schedulable_s.get(name, float("inf")) - created_s > in_time_s
    }
    assert late == {}, log
    uids = [uid for uid, _ in world.scheduler.bound]
    assert len(uids) == len(set(uids)) == len(world.created_s), log  # none twice, none lost
    assert world.placed >= LEAST_PLACED * len(uids), (world.placed, len(uids), log)
    longest_s = max(world.schedulable_s[name] - created_s for name, created_s in world.created_s.items())
    print(
        f"{ROUNDS} kills, {len(uids)} pods, {world.placed} placed, longest {longest_s:.1f} s of {WINDOW_S:g} s window"
    )


def _await_leader(world: World) -> None:
    """Wait until a replica decides."""
    world.submit("first", "gemm")
    end_s = time.monotonic() + PATIENCE_S
    while not world.scheduler.bound and time.monotonic() < end_s:
        world.watch(0.2)
    world.created_s["first"] = time.monotonic()  # before that there was no replica


def test_the_release_command_alone_makes_overdue_pods_schedulable(api_server: ApiServer, tmp_path: Path) -> None:
    """What the CronJob runs once a minute when no replica lives: 60 s at most until it starts, and this long to act."""
    two_nodes(api_server, "dra")
    config = tmp_path / "kubernetes.toml"
    config.write_text('mode = "gate"\nwindow_s = 1.0\ninterval_s = 0.2\n')
    for k in range(20):
        api_server.add(POD, pod(f"p{k}", WORKLOADS[k % 4]))
    time.sleep(2.1)
    before = os.times()
    command = [*COMMAND, "release", "--overdue", "--json", "--config", str(config)]
    environment: dict[str, Any] = {**os.environ, "KUBECONFIG": str(api_server.kubeconfig)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=240)
    after = os.times()
    assert done.returncode == 0, done.stderr
    assert '"released": 20' in done.stdout
    assert all("schedulingGates" not in row["spec"] for row in api_server.rows(POD))
    assert len(api_server.rows(CLAIM)) == 20
    took_s = after.children_user + after.children_system - before.children_user - before.children_system
    assert took_s < 30.0, "CPU seconds"
