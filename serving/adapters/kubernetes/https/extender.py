"""The scheduler extender (v1): filter and prioritize by predicted slowdowns, for clusters that cannot gate.

GPUs in the same situation (type, memory, residents) are asked about once: a thousand nodes of four GPUs are a few dozen
situations. Fail-open: where the policy server is away, or a pod is not advised, every node passes with an equal score.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from interfere.client import PolicyClient
from interfere.errors import InterfereError, InvalidInputError
from interfere.records import NAN, Device, Limits, Ranking
from interfere.records.cluster import DEFAULT_SEATS
from interfere.serving.adapters.kubernetes.https.server import Answer, Request
from interfere.serving.adapters.kubernetes.objects.reading import read_pod
from interfere.serving.adapters.kubernetes.offers import default_share, job_record, offered_gpus
from interfere.serving.adapters.kubernetes.records import ClusterState
from interfere.serving.adapters.kubernetes.settings import KubernetesSettings

_log = logging.getLogger("interfere.kubernetes")
BEST = 10  # MaxExtenderPriority
MAX_SITUATIONS = 512  # in one request; a node whose situations are beyond that gets a middle score


@dataclass(frozen=True, slots=True, kw_only=True)
class Situations:
    """GPUs grouped by situation: one device each, and the situations of every node."""

    devices: tuple[Device, ...]
    of_node: Mapping[str, frozenset[str]]  # node → ids of devices
    default_bytes: float
    hami: bool


def group(state: ClusterState, settings: KubernetesSettings, now_s: float) -> Situations:
    """Group the GPUs that have a free seat."""
    devices: dict[str, Device] = {}
    of_node: dict[str, set[str]] = {}
    for gpu, residents in offered_gpus(state, settings, now_s):
        alike = sorted((replace(job, id="r", elapsed_s=NAN) for job in residents), key=lambda job: job.workload)
        key = repr((gpu.type, gpu.memory_bytes, gpu.mode, gpu.seats, alike))
        if key not in devices:
            number = len(devices)
            devices[key] = Device(
                id=f"s{number}",
                type=gpu.type,
                memory_bytes=gpu.memory_bytes,
                mode=gpu.mode,
                residents=tuple(replace(job, id=f"s{number}/{k}") for k, job in enumerate(alike)),
                seats=None if gpu.seats == DEFAULT_SEATS else gpu.seats,
            )
        of_node.setdefault(gpu.node, set()).add(devices[key].id)
    return Situations(
        devices=tuple(devices.values())[:MAX_SITUATIONS],
        of_node={node: frozenset(ids) for node, ids in of_node.items()},
        default_bytes=default_share(state.gpus).bytes,
        hami=any(gpu.source == "hami" for gpu in state.gpus),
    )


class Extender:
    """Answers kube-scheduler."""

    def __init__(
        self,
        settings: KubernetesSettings,
        client: PolicyClient,
        read_state: Callable[[], ClusterState],
    ) -> None:
        self._settings, self._client, self._read_state = settings, client, read_state
        self._limits = Limits.of(allow_extrapolation=settings.allow_extrapolation)
        self._situations: Situations | None = None

    def refresh(self) -> None:
        """Take in the cluster as it is now; called between requests, so that none pays for it."""
        self._situations = group(self._read_state(), self._settings, time.time())

    def filter(self, request: Request) -> Answer:
        """ExtenderArgs → ExtenderFilterResult."""
        args = _args(request)
        names = node_names(args)
        ranked = self._rank(args)
        failed: dict[str, str] = {}
        if ranked is not None:
            for name, best in _best_of_nodes(*ranked, names).items():
                if not best.feasible:
                    failed[name] = best.reason or "no GPU may take it"
        passed = [name for name in names if name not in failed]
        answer: dict[str, Any] = {"FailedNodes": failed, "FailedAndUnresolvableNodes": {}, "Error": ""}
        if args.get("nodenames") is None and args.get("nodes") is not None:
            items = [each for each in args["nodes"].get("items") or [] if each["metadata"]["name"] not in failed]
            return Answer(document=answer | {"Nodes": {**args["nodes"], "items": items}, "NodeNames": None})
        return Answer(document=answer | {"Nodes": None, "NodeNames": passed})

    def prioritize(self, request: Request) -> Answer:
        """ExtenderArgs → HostPriorityList: 10 for the least cost, 0 for the largest or where no GPU is offered."""
        args = _args(request)
        names = node_names(args)
        ranked = self._rank(args)
        best = _best_of_nodes(*ranked, names) if ranked is not None else {}
        costs = {name: each.cost for name, each in best.items() if each.feasible}
        low, high = min(costs.values(), default=0.0), max(costs.values(), default=0.0)
        spread = high - low
        scores = {name: BEST if spread <= 0 else round(BEST * (high - cost) / spread) for name, cost in costs.items()}
        return Answer(document=[{"Host": name, "Score": scores.get(name, 0)} for name in names])

    def _rank(self, args: Mapping[str, Any]) -> tuple[Mapping[str, frozenset[str]], dict[str, Ranking]] | None:
        """The ranking of every situation; None where the pod is not advised or nobody can say."""
        situations = self._situations
        if situations is None or not situations.devices:
            return None
        pod = read_pod(args.get("pod") or {}, hami=situations.hami)
        record = job_record(pod, situations.default_bytes, time.time(), self._settings) if pod.workload else None
        if record is None or pod.special:
            return None
        try:
            answer = self._client.rank(record, situations.devices, limits=self._limits)
        except InterfereError as error:
            _log.warning("every node passes: %s", " ".join(str(error).split()))
            return None
        return situations.of_node, {ranking.device_id: ranking for ranking in answer.rankings}


def _best_of_nodes(
    of_node: Mapping[str, frozenset[str]], rankings: Mapping[str, Ranking], names: Sequence[str]
) -> dict[str, Ranking]:
    """The best situation of every node that has one. Nodes of the same situations are looked at once."""
    best: dict[frozenset[str], Ranking | None] = {}
    for situations in {of_node[name] for name in names if name in of_node}:
        known = [rankings[each] for each in situations if each in rankings]
        best[situations] = min(known, key=_preference, default=None)
    found = ((name, best[of_node[name]]) for name in names if name in of_node)
    return {name: ranking for name, ranking in found if ranking is not None}


def _preference(ranking: Ranking) -> tuple[bool, float]:
    return not ranking.feasible, ranking.cost if ranking.feasible else 0.0


def _args(request: Request) -> dict[str, Any]:
    """ExtenderArgs with keys in lower case: Go decodes them without regard to case, and versions differ."""
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
    """The candidate nodes: names, where nodeCacheCapable is set, else those of the objects."""
    names = args.get("nodenames")
    if names is not None:
        return [str(name) for name in names]
    return [str(each["metadata"]["name"]) for each in (args.get("nodes") or {}).get("items") or []]
