"""Random histories of a cluster: whoever is away and whoever is released, no GPU is given past a cap or a seat.

Real rounds with a real policy server, real releases and the stand-in of kube-scheduler, on an API server in memory.
HISTORIES=10000 is the soak.
"""

import os
import random
import time
from collections import defaultdict
from typing import Any

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.client import PolicyClient
from interfere.serving.adapters.kubernetes import names, port, releasing
from interfere.serving.adapters.kubernetes.port import controller_metrics
from interfere.serving.adapters.round import Advisor
from interfere.serving.adapters.windows import CombinedMarks
from interfere.serving.server import RunningServer
from tests.serving.adapters.kubernetes.conftest import WORKLOADS
from tests.serving.adapters.kubernetes.control_plane.api_server import CLAIM, CLASS, NODE, POD, SLICE
from tests.serving.adapters.kubernetes.control_plane.memory import Memory
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import DEVICE_TYPE, DRIVER, GIB, node, pod, resource_slice, settings
from tests.waiting import PATIENCE_S

Row = dict[str, Any]
HISTORIES = int(os.environ.get("HISTORIES", "60"))
STEPS = 24
FOUND = () if HISTORIES > 5011 else (5011,)  # 5011: a claim kept from earlier company left a third pod a place
CHOSEN = settings(window_s=60.0, start_s=30.0)


class History:
    """One cluster of four GPUs in two sizes, to which things happen."""

    def __init__(self, seed: int, client: PolicyClient) -> None:
        self.rng, self.memory, self.pods = random.Random(seed), Memory(), 0
        self.memory.add(CLASS, {"metadata": {"name": DRIVER}, "spec": {}})
        for k, size in enumerate(self.rng.choice([("80Gi", "80Gi"), ("80Gi", "40Gi")])):
            self.memory.add(NODE, node(f"n{k}"))
            self.memory.add(SLICE, resource_slice(f"n{k}", gpus=self.rng.choice([1, 2]), memory=size))
        parts: Any = self.memory  # API server and watched collections
        self.port = port.KubernetesPort(CHOSEN, parts, parts, controller_metrics(), lambda: True)
        self.advisor = Advisor(self.port, client, CombinedMarks(), CHOSEN, controller_metrics())
        self.scheduler = StandInScheduler(self.memory)  # type: ignore[arg-type]

    def step(self) -> None:
        kinds = (self.submit, self.decide, self.schedule, self.release, self.end, self.wait, self.submit_of_others)
        self.rng.choices(kinds, weights=(5, 4, 4, 2, 2, 3, 1))[0]()

    def submit(self) -> None:
        for _ in range(self.rng.choice([1, 2, 4])):
            self._submit()

    def _submit(self) -> None:
        self.pods += 1
        notes = {names.MAX_SLOWDOWN: self.rng.choice(["1.0001", "1.1", "1.3"])} if self.rng.random() < 0.4 else {}
        if self.rng.random() < 0.5:
            notes[names.MEMORY_GIB] = self.rng.choice(["1", "20", "50"])
        is_gated = self.rng.random() < 0.8  # else the webhook is away
        self.memory.add(POD, pod(f"p{self.pods}", self.rng.choice(WORKLOADS), gated=is_gated, notes=notes))

    def submit_of_others(self) -> None:
        """A pod that nobody advises, with a small claim of its own: it goes wherever anything is left."""
        self.pods += 1
        name = f"other{self.pods}"
        row = pod(name, gated=False)
        del row["metadata"]["annotations"][names.WORKLOAD]
        exactly = {"deviceClassName": DRIVER, "capacity": {"requests": {"memory": "1Gi"}}}
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        self.memory.add(CLAIM, {"metadata": {"name": f"{name}-gpu", "namespace": "ml"}, "spec": spec})
        self.memory.add(POD, row)

    def decide(self) -> None:
        self.advisor.round()
        self.memory.decided_s = self.port.decided_s

    def schedule(self) -> None:
        self.scheduler.once()

    def release(self) -> None:
        api: Any = self.memory
        releasing.release_pods(api, CHOSEN, controller_metrics(), self.memory.now_s, every=self.rng.random() < 0.1)

    def end(self) -> None:
        running = [row for row in self.memory.now(POD) if row["status"]["phase"] == "Running"]
        if running:
            metadata = self.rng.choice(running)["metadata"]
            self.memory.merge(POD, metadata["namespace"], metadata["name"], {"status": {"phase": "Succeeded"}})

    def wait(self) -> None:
        self.memory.now_s += self.rng.choice([2.0, 20.0, 70.0])

    def companies(self) -> list[list[Row]]:
        """The running pods on each GPU."""
        by_claim = {row["metadata"]["name"]: row for row in self.memory.now(CLAIM)}
        on: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in self.memory.now(POD):
            if row["status"]["phase"] == "Running":
                claim = by_claim[row["spec"]["resourceClaims"][0]["resourceClaimName"]]
                (held,) = claim["status"]["allocation"]["devices"]["results"]
                on[held["pool"], held["device"]].append(row)
        return list(on.values())


def check(company: list[Row], slowdown: dict[tuple[str, str], float], told: str) -> bool:
    """The pods on one GPU: two at most, caps hold, who was released or starts alone under a cap has it for itself.

    Returns whether two share it.
    """
    ours = [row["metadata"]["annotations"] for row in company if names.WORKLOAD in row["metadata"]["annotations"]]
    assert len(ours) <= 2, told
    for notes in ours:
        is_released = notes.get(names.STATE) == "released" and names.DEVICE not in notes
        if is_released or len(ours) == 2:
            assert len(company) == len(ours) == 2 - is_released, told
        if names.MAX_SLOWDOWN in notes and names.PARTNER not in notes and len(ours) == 1:
            assert len(company) == 1, told
    if len(ours) < 2:
        return False
    first, second = ours
    for victim, other in ((first, second), (second, first)):
        predicted = slowdown[victim[names.WORKLOAD], other[names.WORKLOAD]]
        assert predicted <= float(victim.get(names.MAX_SLOWDOWN, "inf")) + 1e-6, told
    return True


def test_no_history_gives_a_gpu_past_a_cap_or_a_seat(policy_server: RunningServer) -> None:
    shared = waited = 0
    with PolicyClient(policy_server.address, timeout_s=PATIENCE_S) as client:
        asked = [(victim, other) for victim in WORKLOADS for other in WORKLOADS]
        jobs = [name for pair in asked for name in pair]
        pairs = [(2 * k, 2 * k + 1) for k in range(len(asked))]
        answer = client.predict(jobs, pairs=pairs, device_type=DEVICE_TYPE, device_memory_bytes=80.0 * GIB).prediction
        slowdown = dict(zip(asked, answer.median, strict=True))
        began_s = time.monotonic()
        for seed in (*range(HISTORIES), *FOUND):
            history = History(seed, client)
            for _ in range(STEPS):
                history.step()
                for company in history.companies():
                    shared += check(company, slowdown, f"history {seed}: {[row['metadata'] for row in company]}")
            waited += sum(row["status"]["phase"] == "Pending" for row in history.memory.now(POD))
    print(f"{HISTORIES} histories in {time.monotonic() - began_s:.0f} s: {shared} times two on a GPU, {waited} waited")
    assert shared
    assert waited
