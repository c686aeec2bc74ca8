"""Facts of NVIDIA GPUs by `nvidia-smi --query-...=... --format=csv`, and samples of one while a command runs alone.

Memory of a command is what the device uses above what it used before the command started: the sum over its processes is
not known inside a container, whose process ids are not those of the driver.

Law: a GPU that is not there is refused, never assumed; a value that the driver does not give is NaN or "".
Written by the documentation and run against its output format; never yet run on a GPU of ours.
"""

import csv
import io
import math
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from types import TracebackType
from typing import Self

from interfere.devices import device_type_of_product
from interfere.errors import ConflictError, NotFoundError, UnfitError, remedy_for_name
from interfere.records import NAN, JobProfile

PROGRAM = "nvidia-smi"
TIMEOUT_S = 20.0  # the first call after a boot without the persistence daemon takes seconds
MIB = 2.0**20
GPU_FIELDS = ("index", "uuid", "name", "driver_version", "clocks.max.sm", "mig.mode.current")
SAMPLE_FIELDS = ("utilization.gpu", "utilization.memory", "memory.used", "power.draw")
PROCESS_FIELDS = ("pid", "process_name", "used_gpu_memory")
FORMAT = "--format=csv,noheader,nounits"
MIG_REMEDY = (
    "name the slice, such as --device-type a100-80gb-1g.10gb, and set CUDA_VISIBLE_DEVICES of the commands to it"
)
UNTRIED = "measuring on a GPU was never run by the authors of this release: check the first figures by hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU of this machine, as nvidia-smi describes it."""

    index: int
    uuid: str
    product: str
    driver: str
    max_sm_clock_mhz: float
    mig: bool

    @property
    def device_type(self) -> str:
        """The device type of the product, such as a100-80gb."""
        return device_type_of_product(self.product)

    @property
    def provenance(self) -> str:
        """Product, driver and highest clock of the GPU, as a table's rows name their device."""
        clock = "" if math.isnan(self.max_sm_clock_mhz) else f", SM clock up to {self.max_sm_clock_mhz:g} MHz"
        return f"{self.product}, driver {self.driver or 'unknown'}{clock}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """The utilisation, memory and power of a GPU at one moment."""

    gpu_util_frac: float
    memory_util_frac: float
    memory_used_bytes: float
    power_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """One process with a compute context on a GPU."""

    pid: int
    name: str
    memory_bytes: float


def list_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs of this machine.

    Raises NotFoundError where there is no driver, UnfitError where the driver does not answer.
    """
    return tuple(
        Gpu(
            index=int(_number(index)),
            uuid=uuid,
            product=product,
            driver=driver,
            max_sm_clock_mhz=_number(clock),
            mig=mig == "Enabled",
        )
        for index, uuid, product, driver, clock, mig in _query(f"--query-gpu={','.join(GPU_FIELDS)}")
    )


def find_gpu(device_type: str, index: int | None = None) -> Gpu:
    """Return the GPU of a device type, chosen by `index` where there are several. Raises NotFoundError where there is
    none."""
    gpus = list_gpus()
    found = ", ".join(f"{gpu.index}: {gpu.device_type}" for gpu in gpus) or "none"
    matching = [gpu for gpu in gpus if gpu.device_type == device_type and index in (None, gpu.index)]
    if not matching:
        wanted = device_type if index is None else f"{device_type} with index {index}"
        raise NotFoundError("no such GPU in this machine", value=wanted, remedy=f"found {found}")
    if len(matching) > 1:
        raise ConflictError("several GPUs of this type", value=found, remedy=f"choose one: --gpu {matching[0].index}")
    if matching[0].mig:
        raise UnfitError("this GPU is divided by MIG", value=matching[0].product, remedy=MIG_REMEDY)
    return matching[0]


def check_gpus(uuids: Iterable[str]) -> None:
    """Raise NotFoundError for a UUID that no GPU of this machine has, or without a driver; UnfitError for a partition
    of a GPU."""
    known: list[str] | None = None
    for uuid in uuids:
        if uuid.startswith("MIG-"):
            raise UnfitError("a partition of a GPU is not measured", value=uuid, remedy="name the whole GPU, or none")
        known = [gpu.uuid for gpu in list_gpus()] if known is None else known
        if uuid not in known:
            remedy = remedy_for_name(uuid, known)
            raise NotFoundError("no GPU of this machine has this UUID", value=uuid, remedy=remedy)


def gpu_processes(gpu_uuid: str) -> tuple[GpuProcess, ...]:
    """Return the processes that compute on a GPU now."""
    rows = _query(f"--query-compute-apps={','.join(PROCESS_FIELDS)}", f"--id={gpu_uuid}")
    return tuple(
        GpuProcess(pid=int(_number(pid)), name=name, memory_bytes=_number(memory) * MIB) for pid, name, memory in rows
    )


def sample_gpu(gpu_uuid: str) -> GpuSample:
    """Return the present state of a GPU. Raises UnfitError where the driver does not answer."""
    (row,) = _query(f"--query-gpu={','.join(SAMPLE_FIELDS)}", f"--id={gpu_uuid}")
    return _sample(row)


def _sample(row: Sequence[str]) -> GpuSample:
    gpu, memory, used, power = map(_number, row)
    return GpuSample(
        gpu_util_frac=gpu / 100, memory_util_frac=memory / 100, memory_used_bytes=used * MIB, power_w=power
    )


def _rows(text: str) -> list[list[str]]:
    """Return the rows of CSV output, each cell without the spaces around it."""
    return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if row]


def _program() -> str:
    found = shutil.which(PROGRAM)
    if found is None:
        raise NotFoundError(
            "this machine has no NVIDIA driver",
            value=f"{PROGRAM} is not on the path",
            remedy="run it on the machine with the GPU; without --device-type one CPU core is measured in its place",
        )
    return found


def _query(*arguments: str) -> list[list[str]]:
    try:
        done = subprocess.run(
            [_program(), *arguments, FORMAT], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "").strip()[:200]
        raise UnfitError(
            f"{PROGRAM} failed", value=said or f"exit code {error.returncode}", remedy="run it by hand"
        ) from None
    except (subprocess.TimeoutExpired, OSError) as error:
        raise UnfitError(f"{PROGRAM} does not answer", value=str(error)[:200], remedy="run it by hand") from None
    return _rows(done.stdout)


def _number(text: str) -> float:
    """Return the number in a cell; NaN for "[N/A]", "[Not Supported]" and the like."""
    try:
        return float(text)
    except ValueError:
        return NAN


PERIOD_S = 0.5  # the driver averages utilisation over up to a second (nvidia-smi manual, Utilization)
END_S = 5.0


@dataclass(slots=True)
class GpuSampler:
    """A context manager that samples a GPU while its block runs; without a GPU it samples nothing."""

    gpu_uuid: str
    samples: list[GpuSample] = field(default_factory=list)
    _process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        if self.gpu_uuid:
            query, period_ms = f"--query-gpu={','.join(SAMPLE_FIELDS)}", round(PERIOD_S * 1e3)
            command = (_program(), query, FORMAT, f"--id={self.gpu_uuid}", f"--loop-ms={period_ms}")
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            text, _ = self._process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            text, _ = self._process.communicate()
        complete = text[: text.rfind("\n") + 1]
        self.samples += [_sample(row) for row in _rows(complete)]


def memory_before(gpu_uuid: str) -> float:
    """Return the bytes in use on the GPU now; NaN without a GPU."""
    return sample_gpu(gpu_uuid).memory_used_bytes if gpu_uuid else NAN


def with_gpu_facts(profile: JobProfile, samples: Sequence[GpuSample], memory_before_bytes: float) -> JobProfile:
    """Return a profile with the GPU's mean utilisation and power, and its peak memory beyond the memory in use
    before."""
    if not samples:
        return profile
    used = [each.memory_used_bytes - memory_before_bytes for each in samples]
    known = [each for each in used if not math.isnan(each)]
    return replace(
        profile,
        gpu_util_frac=_mean([each.gpu_util_frac for each in samples]),
        memory_util_frac=_mean([each.memory_util_frac for each in samples]),
        power_w=_mean([each.power_w for each in samples]),
        memory_peak_bytes=max(0.0, *known) if known else NAN,
    )


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else NAN
