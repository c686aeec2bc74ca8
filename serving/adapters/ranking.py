"""Answers about one job at once, where the scheduler asks for each by itself and cannot wait for a round.

Devices in the same situation (type, memory, residents) are asked about once: a thousand nodes of four GPUs are a few
dozen situations.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from interfere.client import PolicyClient
from interfere.errors import InterfereError
from interfere.records import NAN, Device, Job, Limits, Ranking

_log = logging.getLogger("interfere.adapters")
MAX_SITUATIONS = 512  # in one request; a node whose situations are beyond that is not ranked


@dataclass(frozen=True, slots=True, kw_only=True)
class Situations:
    """Devices grouped by situation: one device each, and the situations of every node."""

    devices: tuple[Device, ...]
    of_node: Mapping[str, frozenset[str]]  # node → ids of devices


def group_by_situation(offered: Iterable[Device]) -> Situations:
    """Group the devices that have a free seat."""
    devices: dict[str, Device] = {}
    of_node: dict[str, set[str]] = {}
    for device in offered:
        residents = sorted(
            (replace(job, id="r", elapsed_s=NAN) for job in device.residents), key=lambda job: job.workload
        )
        key = repr((device.type, device.memory_bytes, device.mode, device.seats, residents))
        if key not in devices:
            name = f"s{len(devices)}"
            numbered = tuple(replace(job, id=f"{name}/{k}") for k, job in enumerate(residents))
            devices[key] = replace(device, id=name, node="", pool="", residents=numbered)
        of_node.setdefault(device.node, set()).add(devices[key].id)
    return Situations(
        devices=tuple(devices.values())[:MAX_SITUATIONS],
        of_node={node: frozenset(ids) for node, ids in of_node.items()},
    )


def best_of_nodes(
    client: PolicyClient, job: Job, situations: Situations, nodes: Sequence[str], limits: Limits
) -> dict[str, Ranking]:
    """For every node that has one, the ranking of its best situation for the job. Empty where nobody can say: the
    scheduler goes on as if it had not asked. `nodes` admit the job, so pools do not matter."""
    if not situations.devices:
        return {}
    try:
        answer = client.rank(replace(job, pools=()), situations.devices, limits=limits)
    except InterfereError as error:
        _log.warning("every node passes: %s", " ".join(str(error).split()))
        return {}
    ranked = {ranking.device_id: ranking for ranking in answer.rankings}
    best: dict[frozenset[str], Ranking | None] = {}
    for ids in {situations.of_node[node] for node in nodes if node in situations.of_node}:
        best[ids] = min((ranked[each] for each in ids if each in ranked), key=_preference, default=None)
    found = ((node, best[situations.of_node[node]]) for node in nodes if node in situations.of_node)
    return {node: ranking for node, ranking in found if ranking is not None}


def _preference(ranking: Ranking) -> tuple[bool, float]:
    return not ranking.feasible, ranking.cost if ranking.feasible else 0.0
