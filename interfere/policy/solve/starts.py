"""From a placement of classes to jobs on devices: which member of a class starts, on which devices, beside whom.

Of interchangeable jobs those that come first in the queue start; of interchangeable devices the first are taken, sets
for gangs before single devices, the largest sizes first. Law: a set of devices spans no more nodes than it must.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interfere.matching.problem import NOBODY, WAITS, Placement
from interfere.policy.costs.candidates import HostPlace
from interfere.policy.device_class import DeviceClass
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.records import Device, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class StartGroup:
    """Pending jobs that start together on the same devices, beside the residents of these devices."""

    column: int  # of the decision's problem
    jobs: tuple[Job, ...]
    classes: tuple[int, ...]  # of each job, among the job classes of its size
    size: int  # devices that each job takes
    devices: tuple[Device, ...]
    device_class: DeviceClass
    residents: tuple[Job, ...] = ()

    @property
    def members(self) -> tuple[Job, ...]:
        """All jobs that will share the devices, residents last."""
        return (*self.jobs, *self.residents)


def start_groups(decision: DecisionProblem, placement: Placement, queue: Sequence[Job]) -> list[StartGroup]:
    """The starts of a placement as jobs on devices; `queue`: the pending jobs in order."""
    position = {job.id: k for k, job in enumerate(queue)}
    free: dict[DeviceClass, list[Device]] = {}
    for host in decision.hosts:
        if not host.places:
            empty = [list(each.empty_devices.get(host.device_class, ())) for each in decision.candidates]
            free[host.device_class] = max(empty, key=len)
    groups: list[StartGroup] = []
    for block in sorted(range(len(decision.candidates)), key=lambda b: -decision.candidates[b].size):
        groups += _groups_of_block(decision, placement, block, free, position)
    return groups


def _groups_of_block(
    decision: DecisionProblem,
    placement: Placement,
    block: int,
    free: dict[DeviceClass, list[Device]],
    position: Mapping[str, int],
) -> list[StartGroup]:
    """The groups of the jobs of one size; the empty devices that they take leave `free`."""
    problem, candidates = decision.problem, decision.candidates[block]
    first, waiting = decision.first_class[block], [deque(members) for members in candidates.job_classes]
    at = (decision.block(placement.column) == block) & (problem.host[placement.column] != WAITS)
    starts = [
        (tuple(job - first for job in problem.members[column].tolist() if job != NOBODY), column, count)
        for column, count in zip(placement.column[at].tolist(), placement.count[at].tolist(), strict=True)
    ]
    # 1. Members of each class start in the order of the queue, alone before beside others.
    starts.sort(key=lambda start: (len(start[0]), bool(not problem.is_empty[problem.host[start[1]]]), start[0]))
    jobs_of = [
        (column, tuple(waiting[i].popleft() for i in classes), classes)
        for classes, column, count in starts
        for _ in range(count)
    ]
    jobs_of.sort(key=lambda start: min(position[job.id] for job in start[1]))
    # 2. Devices and seats, in the order of the first job of each group.
    needed: dict[DeviceClass, int] = {}
    for column, _, _ in jobs_of:
        host = int(problem.host[column])
        if problem.is_empty[host]:
            name = decision.hosts[host].device_class
            needed[name] = needed.get(name, 0) + 1
    sets = {name: deque(device_sets(free[name], candidates.size, count)) for name, count in needed.items()}
    for name, taken in sets.items():
        ids = {device.id for devices in taken for device in devices}
        free[name] = [device for device in free[name] if device.id not in ids]
    seats: dict[int, deque[HostPlace]] = {}
    groups = []
    for column, jobs, classes in jobs_of:
        host = int(problem.host[column])
        there = decision.hosts[host]
        if not there.places:
            place = HostPlace(devices=sets[there.device_class].popleft(), residents=())
        else:
            place = seats.setdefault(host, deque(there.places)).popleft()
        groups.append(
            StartGroup(
                column=column,
                jobs=jobs,
                classes=classes,
                size=candidates.size,
                devices=place.devices,
                device_class=there.device_class,
                residents=place.residents,
            )
        )
    return groups


def device_sets(empty: Sequence[Device], size: int, max_sets: int) -> list[tuple[Device, ...]]:
    """At most `max_sets` sets of `size` of these devices, which are of one class.

    Each set spans as few nodes as possible: it takes the node with the fewest free devices that holds it whole; where
    none does, the nodes with the most free devices first, and then the node with the fewest that holds what is missing.
    """
    if size == 1:
        return [(device,) for device in empty[:max_sets]]
    free_by_node: dict[str, list[Device]] = {}
    for device in empty:
        free_by_node.setdefault(device.node, []).append(device)
    sets = []
    for _ in range(min(max_sets, len(empty) // size)):
        members: list[Device] = []
        while len(members) < size:
            missing = size - len(members)
            sufficient = [node for node, free in free_by_node.items() if len(free) >= missing]
            if sufficient:
                node = min(sufficient, key=lambda name: len(free_by_node[name]))
            else:
                node = max(free_by_node, key=lambda name: len(free_by_node[name]))
            members += free_by_node[node][:missing]
            free_by_node[node] = free_by_node[node][missing:]
            if not free_by_node[node]:
                del free_by_node[node]
        sets.append(tuple(members))
    return sets
