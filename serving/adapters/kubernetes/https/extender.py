"""The scheduler extender (v1): filter and prioritize by predicted slowdowns, for clusters that cannot gate.

Fail-open: where the policy server is away, or a pod is not advised, every node passes with an equal score. A server
that gave no answer is not asked again for a few seconds.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from interfere.client import PolicyClient
from interfere.errors import InterfereError, InvalidInputError
from interfere.records import Limits, Ranking
from interfere.serving.adapters.kubernetes.claims import claim_sizes
from interfere.serving.adapters.kubernetes.objects.reading import read_pod
from interfere.serving.adapters.kubernetes.problem import device_record, job_record, offered_gpus
from interfere.serving.adapters.kubernetes.records import ClusterState, GpuSource
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
from interfere.serving.adapters.round import Situations, best_of_nodes, group_by_situation
from interfere.serving.http_server import Answer, Request

_log = logging.getLogger("interfere.kubernetes")
BEST = 10  # MaxExtenderPriority
PASS_S = 5.0  # after a failed call every node passes at once: kube-scheduler waits for each answer in its only loop


class Extender:
    """Answers the calls of kube-scheduler to a scheduler extender."""

    def __init__(
        self,
        settings: KubernetesSettings,
        client: PolicyClient,
        read_state: Callable[[], ClusterState],
    ) -> None:
        self._settings, self._client, self._read_state = settings, client, read_state
        self._limits = Limits.of(allow_extrapolation=settings.allow_extrapolation)
        self._pass_until_s = 0.0  # on the monotonic clock
        self._known: tuple[Situations, float, bool] | None = None  # default memory of a pod; is there any HAMi?

    def refresh(self) -> None:
        """Read the present state of the cluster. Called between requests, so that no request waits for it."""
        state = self._read_state()
        offered = offered_gpus(state, self._settings, time.time())
        situations = group_by_situation(device_record(gpu, residents) for gpu, residents in offered)
        hami = any(gpu.source is GpuSource.HAMI for gpu in state.gpus)
        self._known = situations, claim_sizes(state.gpus).seat_bytes, hami

    def filter(self, request: Request) -> Answer:
        """Convert ExtenderArgs to an ExtenderFilterResult."""
        args = _args(request)
        names = node_names(args)
        best = self._best_of_nodes(args, names)
        failed = {name: each.reason or "no GPU may take it" for name, each in best.items() if not each.feasible}
        passed = [name for name in names if name not in failed]
        answer: dict[str, Any] = {"FailedNodes": failed, "FailedAndUnresolvableNodes": {}, "Error": ""}
        if args.get("nodenames") is None and args.get("nodes") is not None:
            items = [each for each in args["nodes"].get("items") or [] if each["metadata"]["name"] not in failed]
            return Answer(document=answer | {"Nodes": {**args["nodes"], "items": items}, "NodeNames": None})
        return Answer(document=answer | {"Nodes": None, "NodeNames": passed})

    def prioritize(self, request: Request) -> Answer:
        """Convert ExtenderArgs to a HostPriorityList: 10 for the node of least cost, 0 for that of the largest cost
        and for nodes without a GPU."""
        args = _args(request)
        names = node_names(args)
        best = self._best_of_nodes(args, names)
        costs = {name: each.cost for name, each in best.items() if each.feasible}
        low, high = min(costs.values(), default=0.0), max(costs.values(), default=0.0)
        spread = high - low
        scores = {name: BEST if spread <= 0 else round(BEST * (high - cost) / spread) for name, cost in costs.items()}
        return Answer(document=[{"Host": name, "Score": scores.get(name, 0)} for name in names])

    def _best_of_nodes(self, args: Mapping[str, Any], names: list[str]) -> dict[str, Ranking]:
        """Return the ranking of every node with a GPU; empty where the pod gets no advice or the server gives no
        answer."""
        if self._known is None or time.monotonic() < self._pass_until_s:
            return {}
        situations, default_bytes, hami = self._known
        pod = read_pod(args.get("pod") or {}, self._settings, hami=hami)
        record = job_record(pod, default_bytes, time.time(), self._settings) if pod.workload else None
        if record is None or pod.special:
            return {}
        try:
            return best_of_nodes(self._client, record, situations, names, self._limits)
        except InterfereError as error:
            self._pass_until_s = time.monotonic() + PASS_S
            _log.warning("every node passes for %g s: %s", PASS_S, error.one_line)
            return {}


def _args(request: Request) -> dict[str, Any]:
    """Return the ExtenderArgs of a request, with keys in lower case. Go reads keys in any case, and kube-scheduler's
    versions differ."""
    try:
        document = json.loads(request.body)
        return {str(key).lower(): value for key, value in document.items()}
    except (ValueError, AttributeError) as error:
        raise InvalidInputError(
            f"these are no ExtenderArgs ({error})",
            value=repr(request.body[:60]),
            remedy="POST what kube-scheduler does",
        ) from None


def node_names(args: Mapping[str, Any]) -> list[str]:
    """Return the names of the candidate nodes, which are sent as names (nodeCacheCapable) or as objects."""
    names = args.get("nodenames")
    if names is not None:
        return [str(name) for name in names]
    return [str(each["metadata"]["name"]) for each in (args.get("nodes") or {}).get("items") or []]
