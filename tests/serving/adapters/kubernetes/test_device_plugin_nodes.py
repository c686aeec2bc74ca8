"""Nodes of several GPUs under the plain device plugin: the node is chosen, the kubelet chooses the GPU."""

import random
from collections import Counter
from typing import Any

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.client import PolicyClient
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.port import KubernetesPort, controller_metrics
from interfere.serving.adapters.round import Advisor
from interfere.serving.adapters.windows import CombinedMarks
from interfere.serving.server import RunningServer
from tests.serving.adapters.kubernetes.conftest import WORKLOADS
from tests.serving.adapters.kubernetes.control_plane.api_server import NODE, POD
from tests.serving.adapters.kubernetes.control_plane.memory import Memory
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import node, pod, settings

HISTORIES, STEPS, GPUS = 10, 25, 3
Row = dict[str, Any]


class DevicePluginCluster:
    """Nodes of several GPUs, whose kubelets give each pod one of the GPUs that the fewest pods share."""

    def __init__(self, client: PolicyClient, nodes: int = 2, gpus: int = GPUS, seed: int = 0) -> None:
        self.memory, self.rng, self.given = Memory(), random.Random(seed), dict[str, tuple[str, int]]()
        self.gpus, self.count, chosen = gpus, 0, settings()
        for k in range(nodes):
            self.memory.add(NODE, node(f"n{k}", gpus=gpus))
        api: Any = self.memory
        port = KubernetesPort(chosen, api, api, controller_metrics(), lambda: True)
        self.advisor = Advisor(port, client, CombinedMarks(), chosen, controller_metrics())
        self.scheduler = StandInScheduler(api)

    def submit(self, workload: str, **notes: str) -> str:
        self.count += 1
        self.memory.add(POD, pod(f"p{self.count}", workload, source="node", notes=notes))
        return f"p{self.count}"

    def schedule(self) -> None:
        self.scheduler.once()
        running = {row["metadata"]["name"]: row for row in self.running()}
        self.given = {name: place for name, place in self.given.items() if name in running}
        for name, row in running.items():
            if name not in self.given:
                on = Counter(self.given.values())
                node_name = row["spec"]["nodeName"]
                least = min(on[node_name, k] for k in range(self.gpus))
                free = [k for k in range(self.gpus) if on[node_name, k] == least]
                self.given[name] = node_name, self.rng.choice(free)

    def running(self) -> list[Row]:
        return [row for row in self.memory.now(POD) if row["status"]["phase"] == "Running"]

    def end(self) -> None:
        if running := self.running():
            metadata = self.rng.choice(running)["metadata"]
            self.memory.merge(POD, metadata["namespace"], metadata["name"], {"status": {"phase": "Succeeded"}})
            self.given.pop(metadata["name"], None)

    def note(self, name: str, of: str) -> str:
        (row,) = [each for each in self.memory.now(POD) if each["metadata"]["name"] == name]
        return str(row["metadata"]["annotations"].get(of, ""))


def test_idle_gpus_are_given_alone_and_what_cannot_be_promised_is_said(policy_server: RunningServer) -> None:
    with PolicyClient(policy_server.address) as client:
        cluster = DevicePluginCluster(client, nodes=1)
        for _ in range(GPUS):
            cluster.submit("request-server", **{names.MAX_SLOWDOWN: "1.0001"})
        decisions = cluster.advisor.round().decisions
        cluster.schedule()
        assert [each.action.kind.value for each in decisions] == ["start_alone"] * GPUS
        assert sorted(gpu for _, gpu in cluster.given.values()) == list(range(GPUS))
        assert "which of the 3 GPUs of n0 it gets is the kubelet's choice" in cluster.note("p1", names.REASON)
        late = cluster.submit("request-server")
        cluster.advisor.round()
        cluster.schedule()
        assert late not in cluster.given, "every GPU is of a pod with a cap"


def test_the_node_is_chosen_by_the_company_that_is_likely_there(policy_server: RunningServer) -> None:
    """All GPUs are in use: the pod goes where it and the neighbour that it will probably have lose least."""
    with PolicyClient(policy_server.address) as client:
        jobs = ["request-server", "gemm", "rl-rollout"]
        pairs = [(0, 1), (1, 0), (0, 2), (2, 0)]  # both lose
        slowdowns = client.predict(jobs, pairs=pairs, device_type="cpu-core").prediction.median
        gentler = ("gemm", "rl-rollout")[int(sum(slowdowns[2:]) < sum(slowdowns[:2]))]
        cluster = DevicePluginCluster(client)
        for name, workload in (("n0", "gemm"), ("n1", "rl-rollout")):
            for k in range(GPUS):
                row = pod(f"{name}-{k}", workload, source="node", gated=False, nodeName=name)
                row["status"]["phase"] = "Running"
                cluster.memory.add(POD, row)
        late = cluster.submit("request-server")
        (decision,) = cluster.advisor.round().decisions
        assert decision.action.kind.value == "start_shared"
        cluster.schedule()
        assert cluster.given[late][0] == {"gemm": "n0", "rl-rollout": "n1"}[gentler]


def test_no_history_puts_company_beside_a_cap_or_a_third_pod_on_a_gpu(policy_server: RunningServer) -> None:
    shared = capped = 0
    with PolicyClient(policy_server.address) as client:
        for seed in range(HISTORIES):
            cluster = DevicePluginCluster(client, seed=seed)
            for _ in range(STEPS):
                for _ in range(cluster.rng.choice([0, 1, 2])):
                    notes = {names.MAX_SLOWDOWN: "1.05"} if cluster.rng.random() < 0.3 else {}
                    cluster.submit(cluster.rng.choice(WORKLOADS), **notes)
                cluster.advisor.round()
                cluster.schedule()
                on = Counter(cluster.given.values())
                assert max(on.values(), default=0) <= 2
                for name, place in cluster.given.items():
                    shared += on[place] > 1
                    if cluster.note(name, names.MAX_SLOWDOWN):
                        capped += 1
                        assert on[place] == 1, f"history {seed}: {name} has a cap"
                if cluster.rng.random() < 0.5:
                    cluster.end()
                cluster.memory.now_s += 2.0
    assert shared
    assert capped
