"""Admission of a job that `interfere run` starts to a device of this node, by what the devices may still grant.

    devices.json   by the agent, in the folder of started jobs: each device, its GPU, and the memory that it may grant

Law 1: where the agent enforces grants, those of the jobs that run on a device never come to more than it may grant: its
own memory, and what the host reserves for it. A job counts from the moment at which its folder says what it asks for,
before it is admitted. So of two that start at once the last free memory goes to one at most; both may be refused.
Law 2: a file of another user than root or the reader is refused.
"""

import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from interfere.errors import InterfereError, InvalidInputError, LimitError, NotFoundError, UnfitError, remedy_for_name
from interfere.file_writing import write_text
from interfere.profiling.programs.spec import GPU_VARIABLE
from interfere.profiling.programs.started_jobs import (
    JobRecord,
    make_folder,
    make_root,
    started_jobs,
    token_processes,
    write_record,
)
from interfere.progress import open_regular
from interfere.records.documents import from_json, to_json
from interfere.records.promises import granules_for
from interfere.reports.numbers import format_gib

DEVICES = "devices.json"
MAX_BYTES = 1 << 20
GIB = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDevice:
    """A device of this node, and the memory that it may grant."""

    id: str  # as `interfere run --device` names it
    gpu_uuid: str = ""  # as nvidia-smi -L lists it; empty: a part of the host
    granules: int = 0  # that it may grant, as far as the host backs them; 0: it grants none
    granule_bytes: float = 0.0
    host_reserve_bytes: float = 0.0  # the part of them that the host backs

    @property
    def granted_bytes(self) -> float:
        """The memory that it may grant in all."""
        return self.granules * self.granule_bytes

    def environment(self) -> dict[str, str]:
        """Return the variables that let a program see this GPU alone; none for a part of the host.

        Raises InvalidInputError where the environment of this process chooses otherwise.
        """
        chosen = os.environ.get(GPU_VARIABLE, self.gpu_uuid)
        if self.gpu_uuid and chosen != self.gpu_uuid:
            raise InvalidInputError(
                f"the environment chooses another GPU than device {self.id}",
                value=f"{GPU_VARIABLE}={chosen}",
                remedy=f"unset {GPU_VARIABLE}: --device chooses the GPU, by its id or its UUID",
            )
        return {GPU_VARIABLE: self.gpu_uuid} if self.gpu_uuid else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDevices:
    """The content of `devices.json`."""

    enforced: bool  # else jobs are admitted all the same, and told what would be refused
    devices: tuple[PublishedDevice, ...]

    def find(self, name: str) -> PublishedDevice:
        """Return a device by its id or by the UUID of its GPU. Raises NotFoundError."""
        for device in self.devices:
            if name and name in (device.id, device.gpu_uuid):
                return device
        known = dict.fromkeys(each for device in self.devices for each in (device.id, device.gpu_uuid) if each)
        remedy = remedy_for_name(name, known)
        raise NotFoundError("the agent of this node knows no such device", value=name, remedy=remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A job that may start: its folder and record, the variables that choose its GPU, and why an agent that enforces
    grants would have refused it."""

    folder: Path
    record: JobRecord
    environment: Mapping[str, str] = field(default_factory=dict)
    objection: str = ""


def publish(root: Path, devices: PublishedDevices) -> None:
    """Write the devices of this node; of a node without any nothing is left. Raises UnfitError."""
    try:
        if not devices.devices:
            (root / DEVICES).unlink(missing_ok=True)
            return
        make_root(root)
    except OSError as error:
        what = f"the folder of started jobs cannot be written ({error.strerror})"
        raise UnfitError(what, value=root, remedy="set jobs to a folder that the agent may write to") from None
    write_text(root / DEVICES, to_json(devices) + "\n")


def read_devices(root: Path) -> PublishedDevices | None:
    """Return the devices of this node; None where no agent has published any. Raises UnfitError for a file that is not
    to be believed."""
    path = root / DEVICES
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY, (os.getuid(), 0)), "rb") as file:
            return from_json(PublishedDevices, file.read(MAX_BYTES).decode())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, InvalidInputError) as error:
        remedy = "remove it, and start the agent of this node again"
        raise UnfitError(f"the devices of this node cannot be read ({error})", value=path, remedy=remedy) from None


def admit(root: Path, record: JobRecord) -> Admission:
    """Return the admission of a job whose record names a device by its id or by the UUID of its GPU.

    Raises NotFoundError for a device that the agent does not know, InvalidInputError where the environment chooses
    another GPU, and LimitError where the device cannot back the memory that the job asks for: nothing of the job is
    left then.
    """
    devices = read_devices(root)
    if devices is None:
        return Admission(folder=_announced(root, record), record=record)
    try:
        device = devices.find(record.device_id)
    except NotFoundError as error:
        if devices.enforced:
            raise
        return Admission(folder=_announced(root, record), record=record, objection=error.one_line)
    record, environment = replace(record, device_id=device.id), device.environment()
    folder, objection = _announced(root, record), ""
    try:
        _check_backed(root, record, device, devices)
    except LimitError as error:
        if devices.enforced:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        objection = error.one_line
    return Admission(folder=folder, record=record, environment=environment, objection=objection)


def _announced(root: Path, record: JobRecord) -> Path:
    """Make the folder of a job, and write what it is."""
    folder = make_folder(root, record.job_id)
    try:
        write_record(folder, record)
    except InterfereError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _check_backed(root: Path, record: JobRecord, device: PublishedDevice, devices: PublishedDevices) -> None:
    """Raise LimitError where the jobs of a device and this one ask for more than it may grant."""
    if not device.granules or math.isnan(record.memory_bytes):
        return
    held = {each.id: _held_bytes(root, record.job_id, each) for each in devices.devices if each.granules}
    free_bytes = {
        each.id: each.granted_bytes - sum(held[each.id].values()) for each in devices.devices if each.granules
    }
    needed_bytes = _granted_bytes(record.memory_bytes, device)
    if needed_bytes <= free_bytes[device.id] * (1.0 + 1e-9):
        return
    holders = ", ".join(f"{job_id} holds {format_gib(held_bytes)}" for job_id, held_bytes in held[device.id].items())
    host = f", of which the host backs {format_gib(device.host_reserve_bytes)}" if device.host_reserve_bytes else ""
    free = f"{format_gib(free_bytes[device.id])} of {format_gib(device.granted_bytes)} free"
    asked = f"{format_gib(needed_bytes)} asked, {free}{host}"
    others = [f"--device {name} ({format_gib(left)} free)" for name, left in free_bytes.items() if left >= needed_bytes]
    less = f"--memory-gib {free_bytes[device.id] / GIB:g} or less" if free_bytes[device.id] > 0 else ""
    later = "start it when one of them has ended" if holders and needed_bytes <= device.granted_bytes else ""
    raise LimitError(
        f"device {device.id} cannot back the memory of this job",
        value=f"{asked}; {holders}" if holders else asked,
        remedy=", or ".join(filter(None, [*others[:1], less, later])) or "ask for less",
    )


def _held_bytes(root: Path, job_id: str, device: PublishedDevice) -> dict[str, float]:
    """Return the memory that running jobs were granted on a device, by job id, without one job."""
    return {
        job.id: _granted_bytes(job.record.memory_bytes, device)
        for job in started_jobs(root)
        if job.record.device_id == device.id and job.id != job_id and not math.isnan(job.record.memory_bytes)
        if job.ending is None and (job.supervisor_lives() or token_processes(job))
    }


def _granted_bytes(memory_bytes: float, device: PublishedDevice) -> float:
    return granules_for(memory_bytes, device.granule_bytes) * device.granule_bytes
