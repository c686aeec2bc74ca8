"""Whoever is away at first and later, whatever is done: no pod waits past its window and ten seconds for our sake.

Parts: webhook, controller, policy server, and the CronJob that is there until an uninstall. Time is virtual; rounds,
releases, the webhook's mutation and a policy server are real. HISTORIES=10000, as in the soak, runs every order.
"""

import itertools
import random
from typing import Any, NamedTuple

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from interfere.client import PolicyClient
from interfere.errors import UnavailableError
from interfere.serving.adapters.kubernetes import releasing
from interfere.serving.adapters.kubernetes.objects.values import unix_s
from interfere.serving.adapters.kubernetes.port import KubernetesPort, controller_metrics
from interfere.serving.adapters.kubernetes.webhook import mutation
from interfere.serving.adapters.round import Advisor, one_round
from interfere.serving.adapters.windows import CombinedMarks
from interfere.serving.server import RunningServer
from tests.serving.adapters.kubernetes.control_plane.admission import patched
from tests.serving.adapters.kubernetes.control_plane.api_server import CLAIM, CLASS, NODE, POD, SLICE, TEMPLATE
from tests.serving.adapters.kubernetes.control_plane.memory import Memory
from tests.serving.adapters.kubernetes.control_plane.scheduler import StandInScheduler
from tests.serving.adapters.kubernetes.facts import DRIVER, node, pod, resource_slice, settings
from tests.serving.adapters.kubernetes.test_histories import HISTORIES
from tests.serving.adapters.kubernetes.test_templates import template, templated
from tests.waiting import PATIENCE_S

WINDOW_S, SLACK_S, STEP_S, CRON_S = 60.0, 10.0, 5.0, 60.0
CHOSEN = settings(window_s=WINDOW_S, start_s=30.0)
KINDS = ("template", "late claim", "nodeSelector", "HAMi")
ACTS = ("create", "delete", "rollback", "uninstall")
ALL = frozenset(("webhook", "controller", "server"))
PRESENT = [frozenset(each) for n in range(4) for each in itertools.combinations(sorted(ALL), n)]
SAMPLE = 64  # orders of every test run
END_S = 30.0 + WINDOW_S + SLACK_S + 2 * STEP_S


class Order(NamedTuple):
    """A kind of pods, the parts that are there at first and later, and what is done."""

    kind: str
    first: frozenset[str]
    later: frozenset[str]
    act: str


class AwayClient:
    """A policy server that does not answer."""

    def match(self, *_: Any, **__: Any) -> Any:
        raise UnavailableError("no policy server", value="127.0.0.1:1")

    observe = match


class VirtualCluster:
    """A cluster in memory with all parts, five seconds a step."""

    def __init__(self, order: Order, client: PolicyClient) -> None:
        self.memory, self.order, self.client, self.parts = Memory(), order, client, set(order.first)
        self.has_cron_job, self.is_releasing = True, False
        self.memory.add(CLASS, {"metadata": {"name": DRIVER}, "spec": {}})
        self.memory.add(TEMPLATE, template())
        for k in range(5 if order.kind == "nodeSelector" else 2):
            hami = order.kind == "HAMi"
            self.memory.add(NODE, node(f"n{k}", gpus=3 * hami or order.kind == "nodeSelector", hami=hami))
            if order.kind in ("template", "late claim"):
                self.memory.add(SLICE, resource_slice(f"n{k}", gpus=3))
        api: Any = self.memory
        self.api, self.metrics = api, controller_metrics()
        self.port = KubernetesPort(CHOSEN, api, api, self.metrics, lambda: True)
        self.advisor = Advisor(self.port, client, CombinedMarks(), CHOSEN, self.metrics)
        self.scheduler = StandInScheduler(api)

    def create(self, *pods: str) -> None:
        source = {"nodeSelector": "node", "HAMi": "hami"}.get(self.order.kind, "dra")
        for name in pods:
            row = templated(name) if self.order.kind == "template" else pod(name, source=source, gated=False)
            gate = mutation(row, f"u-{name}", CHOSEN) if "webhook" in self.parts else []
            self.memory.add(POD, patched(row, gate))

    def act(self) -> None:
        if self.order.act == "delete":
            for name in ("p0", "p2"):
                self.memory.delete(POD, "ml", name)
        if self.order.act == "rollback":  # nobody opts in any longer
            self.parts -= {"webhook"}
            releasing.release_pods(self.api, CHOSEN, self.metrics, self.memory.now_s, every=True)
        if self.order.act == "uninstall":
            releasing.release_for_good(self.api, CHOSEN, self.metrics, "interfere")
            self.parts, self.has_cron_job, self.is_releasing = set(), False, False

    def step(self, at_s: float) -> None:
        if "controller" in self.parts:
            self.advisor.client = self.client if "server" in self.parts else AwayClient()  # type: ignore[assignment]
            one_round(self.advisor)
            self.memory.decided_s = self.port.decided_s
            releasing.release_pods(self.api, CHOSEN, self.metrics, self.memory.now_s)
        self.is_releasing |= self.has_cron_job and at_s % CRON_S == 0
        if self.is_releasing:  # `release --overdue --for 55`
            done = releasing.release_pods(self.api, CHOSEN, self.metrics, self.memory.now_s)
            self.is_releasing = done.still_held > 0 and at_s % CRON_S + STEP_S <= 55.0
        self.scheduler.once()
        self.memory.now_s += STEP_S

    def late(self) -> list[str]:
        """Pods that wait past their window and ten seconds, or run without the GPU that they asked for."""
        allocated = {
            name for (_, name), row in self.memory.objects[CLAIM].items() if (row.get("status") or {}).get("allocation")
        }
        found = []
        for row in self.memory.now(POD):
            age_s = self.memory.now_s - unix_s(row["metadata"]["creationTimestamp"])
            made = {each["resourceClaimName"] for each in row["status"].get("resourceClaimStatuses", ())}
            made |= {
                each["resourceClaimName"]
                for each in row["spec"].get("resourceClaims", ())
                if "resourceClaimName" in each
            }
            is_waiting = not row["spec"].get("nodeName") and age_s > WINDOW_S + SLACK_S
            lacks_gpu = bool(row["spec"].get("nodeName")) and not made <= allocated
            if is_waiting or lacks_gpu:
                found.append(f"{row['metadata']['name']} after {age_s:g} s: {row['metadata']} {row['spec']}")
        return found


def run(order: Order, client: PolicyClient) -> list[str]:
    cluster = VirtualCluster(order, client)
    at_s = 0.0
    cluster.create("p0", "p1")
    while at_s <= END_S:
        if at_s == 10.0:
            cluster.parts = set(order.later)
        if at_s == 15.0:
            cluster.create("p2", "p3")
        if at_s == 25.0:
            cluster.act()
        # Without interfere nobody makes a claim that a manifest names and its user does not create.
        if at_s == 30.0 and (order.kind, order.act) != ("late claim", "uninstall"):
            cluster.create("p4")
        cluster.step(at_s)
        at_s += STEP_S
        if late := cluster.late():
            return [f"{order} at {at_s:g} s: {each}" for each in late]
    assert len(cluster.memory.objects[POD]) >= 3
    return []


def test_no_order_of_parts_and_acts_leaves_a_pod_waiting(policy_server: RunningServer, monkeypatch: Any) -> None:
    monkeypatch.setattr(releasing, "PAUSE_S", 0.0)
    orders = [Order(*each) for each in itertools.product(KINDS, PRESENT, PRESENT, ACTS)]
    assert len(orders) == 1024
    chosen = orders if HISTORIES >= 1_000 else random.Random(0).sample(orders, SAMPLE)
    with PolicyClient(policy_server.address, timeout_s=PATIENCE_S) as client:
        failures = [each for order in chosen for each in run(order, client)]
    assert not failures, f"{len(failures)} of {len(chosen)} orders: {failures[:3]}"
