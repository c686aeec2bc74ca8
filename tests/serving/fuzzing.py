"""Random well-formed requests of every method: mostly sensible ones, in which some fields hold extreme values."""

import random
import struct
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from interfere.v1 import policy_pb2 as pb
from tests.models import DEVICE_TYPE, WORKLOADS

METHODS = {
    "PredictSlowdowns": 4,
    "PredictMatrix": 2,
    "Match": 10,
    "RankPlacements": 4,
    "AdviseMode": 2,
    "SuggestProbes": 2,
    "Explain": 1,
    "ListGrants": 1,
    "ListDecisions": 1,
    "ListScopes": 1,
    "GetScope": 1,
    "ReportObservations": 4,
    "RegisterProfiles": 3,
    "RemoveProfiles": 1,
    "GetProfile": 1,
    "ListProfiles": 1,
    "GetObservationLog": 1,
    "GetModel": 1,
}  # with how often each is asked
EXTREME = (
    0.0,
    -0.0,
    5e-324,
    1e-300,
    1e-9,
    -1.0,
    1e11,
    1e15,
    1e18,
    1.7e9,
    1e200,
    1.7e308,
    -1e308,
    *map(float, ("nan", "inf", "-inf")),
)
WHOLE = (0, 1, 2, 3, 4, 5, 7, 4_000, 2**31 - 1, 2**31, 2**32 - 1)
TEXTS = (
    "",
    " ",
    "a",
    "ä\N{SNOWMAN}",
    "\x00",
    "a\nb",
    "x" * 256,
    "x" * 257,
    "y" * 20_000,
    "[/red]",
    "../../etc",
    "%s{}",
    "'; --",
)
_WHOLE_TYPES = {
    FieldDescriptor.TYPE_UINT32: 32,
    FieldDescriptor.TYPE_UINT64: 64,
    FieldDescriptor.TYPE_INT32: 31,
    FieldDescriptor.TYPE_INT64: 63,
}


def _repair_job(job: Any, rng: random.Random) -> None:
    job.gpus = rng.choice((1, 1, 1, 1, 2))
    if rng.random() < 0.9:
        job.remaining_s, job.attained_s, job.elapsed_s = 10 ** rng.uniform(0, 5), rng.random() * 1e3, rng.random() * 1e4
    if job.HasField("remaining_p90_s"):
        job.remaining_p90_s = job.remaining_s * 1.5
        job.ClearField("remaining_p90_s" if not job.HasField("remaining_s") else "profile_id")
    if not job.HasField("remaining_s"):
        job.ClearField("deadline_s")
    job.ClearField("profile_id")
    if rng.random() < 0.9:
        job.ClearField("pools")
    if rng.random() < 0.7:
        job.ClearField("max_slowdown")
        job.ClearField("latency_target_s")
        job.ClearField("deadline_s")


def _repair_device(device: Any, rng: random.Random) -> None:
    del device.residents[rng.choice((0, 0, 1, 1, 2, 3)) :]
    for job in device.residents:
        job.gpus = 1
    if device.HasField("granule_bytes"):
        device.memory_bytes = device.granule_bytes * rng.choice((1, 2.5, 40))
    if rng.random() < 0.7:
        device.ClearField("windows")


def _repair_profile(profile: Any, rng: random.Random) -> None:
    del profile.idle_s[len(profile.busy_s) :], profile.busy_s[len(profile.idle_s) :]
    profile.step_time_s = 10 ** rng.uniform(-4, 1)


def _repair_limits(limits: Any, rng: random.Random) -> None:
    allowed = sorted({*limits.allowed, pb.ACTION_KIND_WAIT} - {pb.ACTION_KIND_UNSPECIFIED})
    limits.ClearField("allowed")
    limits.allowed.extend(allowed if rng.random() < 0.6 else ())
    limits.soft_cap = 1.5


def _repair_match(request: Any, rng: random.Random) -> None:
    latest_s = max((job.since_s for device in request.devices for job in device.residents), default=0.0)
    if request.HasField("now_s"):
        request.now_s = max(request.now_s, latest_s)
    request.limits.soft_cap = 1.5
    if rng.random() < 0.8:
        request.ClearField("objective_terms")
    if not request.HasField("now_s"):
        for device in request.devices:
            device.ClearField("windows")
        for job in (*request.pending, *(job for device in request.devices for job in device.residents)):
            job.ClearField("deadline_s")


def _repair_pairs(request: Any, rng: random.Random) -> None:
    for pair in request.pairs:
        pair.victim, pair.neighbour = (k % max(1, len(request.jobs)) for k in (pair.victim, pair.neighbour))
        pair.ClearField("further")


_REPAIRS = {
    "Job": _repair_job,
    "Device": _repair_device,
    "JobProfile": _repair_profile,
    "KernelStat": lambda kernel, rng: kernel.ClearField("compute_bound"),
    "JobRef": lambda ref, rng: None if ref.HasField("profile") else setattr(ref, "workload", rng.choice(WORKLOADS)),
    "Limits": _repair_limits,
    "MatchRequest": _repair_match,
    "PredictSlowdownsRequest": _repair_pairs,
}


class Fuzzer:
    """Requests from a seed. `extreme`: the share of fields that hold an extreme value in an extreme request.

    `caller` is part of scopes and ids, so that several callers at once have clocks of their own.
    """

    def __init__(self, seed: int, *, extreme: float = 0.08, caller: str = "") -> None:
        self._caller = caller
        self._rng, self._extreme, self._share = random.Random(seed), extreme, 0.0
        self._ids = 0
        self.now_s = 0.0
        self.decision_ids: list[str] = ["none"]

    def requests(self, count: int) -> Iterator[tuple[str, Any]]:
        """So many pairs of a method and its request."""
        methods, weights = zip(*METHODS.items(), strict=True)
        for _ in range(count):
            (method,) = self._rng.choices(methods, weights)
            self._share = self._rng.choice((0.0, 0.0, self._extreme, 4 * self._extreme))
            self.now_s += self._rng.random() * 10
            message = getattr(pb, f"{method}Request")()
            self._fill(message, 0)
            yield method, message

    def _fill(self, message: Any, depth: int) -> None:
        rng, oneofs = self._rng, {}
        for field in message.DESCRIPTOR.fields:
            if field.containing_oneof is not None and len(field.containing_oneof.fields) > 1:
                oneofs.setdefault(field.containing_oneof.name, []).append(field)
                continue
            self._set(message, field, depth)
        for fields in oneofs.values():
            if rng.random() > self._share:
                weights = [1 if field.name == "rollback" else 20 for field in fields]  # each learns the log again
                self._set(message, rng.choices(fields, weights)[0], depth)
        if rng.random() >= 2 * self._share and (repair := _REPAIRS.get(message.DESCRIPTOR.name)):
            repair(message, rng)

    def _set(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        rng, name = self._rng, field.name
        if field.is_repeated:
            most = {"pending": 12, "devices": 8, "jobs": 6, "victims": 6, "observations": 6}.get(name, 3)
            count = rng.randint(0 if rng.random() < 0.3 else 1, most)
            if rng.random() < self._share / 50:
                count = 300
            for _ in range(count):
                if field.type == FieldDescriptor.TYPE_MESSAGE:
                    self._fill(getattr(message, name).add(), depth + 1)
                else:
                    getattr(message, name).append(self._value(message, field))
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            if rng.random() < 0.9:
                getattr(message, name).SetInParent()
                self._fill(getattr(message, name), depth + 1)
        elif field.containing_oneof is None or rng.random() < 0.4:
            setattr(message, name, self._value(message, field))

    def _value(self, message: Any, field: FieldDescriptor) -> Any:
        rng = self._rng
        extreme = rng.random() < self._share
        if field.type == FieldDescriptor.TYPE_STRING:
            return rng.choice(TEXTS) if extreme else self._text(message.DESCRIPTOR.name, field.name)
        if field.type == FieldDescriptor.TYPE_BOOL:
            return rng.random() < 0.3
        if field.type == FieldDescriptor.TYPE_BYTES:  # columns of doubles, or anything
            numbers = [rng.choice(EXTREME) if extreme else self._number(field.name) for _ in range(rng.randint(0, 12))]
            return rng.randbytes(rng.randint(0, 40)) if extreme else struct.pack(f"<{len(numbers)}d", *numbers)
        if field.type == FieldDescriptor.TYPE_ENUM:
            known = [value.number for value in field.enum_type.values]
            return rng.choice((99, -1, 2**31 - 1)) if extreme else rng.choice(known)
        if field.type in _WHOLE_TYPES:
            bits = _WHOLE_TYPES[field.type]
            most = 2**bits - 1
            return min(rng.choice((*WHOLE, most)), most) if extreme else self._whole(field.name)
        return rng.choice(EXTREME) * rng.choice((1.0, 1.0, 0.5)) if extreme else self._number(field.name)

    def _text(self, owner: str, name: str) -> str:
        rng = self._rng
        if name in ("workload", "company"):
            return rng.choice((*WORKLOADS, "unknown", "new"))
        if name in ("device_type", "type"):
            return rng.choice((DEVICE_TYPE,) * 9 + ("v100",))
        if name in ("id", "observation_id", "snapshot_id"):
            self._ids += 1
            return f"{owner[0].lower()}{self._caller}{self._ids}"
        if name == "decision_id":
            return rng.choice(self.decision_ids)
        return {
            "scope": rng.choice(("", "a", "b", "c")) + self._caller,
            "job_id": f"j{self._caller}{rng.randint(0, max(1, self._ids))}",
            "device_id": f"d{rng.randint(0, 9)}",
            "profile_id": "",
            "pool": rng.choice(("", "", "p")),
            "pools": "p",
            "source": "cpu",
            "reason": "finished",
        }.get(name, "name")

    def _whole(self, name: str) -> int:
        most = {"priority": 4, "gpus": 3, "victim": 5, "neighbour": 5, "further": 5, "max_devices": 8}.get(name, 20)
        return self._rng.randint(0, most)

    def _number(self, name: str) -> float:
        rng = self._rng
        if name in ("now_s", "since_s", "start_s", "from_s", "at_s"):
            return max(0.0, self.now_s - rng.choice((0.0, 0.0, 5.0)))
        if name in ("end_s", "until_s", "deadline_s"):
            return self.now_s + 10 ** rng.uniform(0, 4)
        if name == "time_budget_s":
            return 10 ** rng.uniform(-3, -1)
        if name.endswith("bytes"):
            return 2.0 ** rng.uniform(20, 36)
        if name.endswith(("_frac", "headroom", "tolerance")) or name in ("risk", "misfit_risk", "quantile"):
            return rng.uniform(0.01, 0.4)
        above_one = name.endswith(("slowdown", "_cap", "_ratio", "_factor"))
        return 1.0 + rng.expovariate(1.0) if above_one else 10 ** rng.uniform(-2, 4)
