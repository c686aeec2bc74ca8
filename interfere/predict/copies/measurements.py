"""Measured throughput of one inference model in MIG slices, per copy, by slice, batch size and number of copies."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from interfere.data.importers.parvagpu import COLUMNS, COMPUTE_SLICES
from interfere.data.importers.strict_reading import read_csv

COPIES = (1, 2, 3, 4, 5)
SLICES_OF_GPU = 7


class Configuration(NamedTuple):
    """Copies of a model that share one slice, each with requests of one batch size."""

    slice_size: int  # compute units, of 7
    batch: int
    copies: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMeasurements:
    """Throughput per copy in requests/s by configuration; 0 if the copies did not fit or were not run."""

    name: str
    throughput: Mapping[Configuration, float]

    def latency_s(self, configuration: Configuration) -> float:
        """Return the latency of a batch; infinite if the copies did not fit. Raises KeyError if it was not measured."""
        rate = self.throughput[configuration]
        return configuration.batch / rate if rate > 0 else float("inf")

    def of_one_copy(self) -> "ModelMeasurements":
        """Return these measurements restricted to configurations of one copy."""
        rows = {key: rate for key, rate in self.throughput.items() if key.copies == 1}
        return ModelMeasurements(name=self.name, throughput=rows)

    def one_copy_latencies_s(self) -> dict[tuple[int, int], float]:
        """Return the batch latency of one copy in seconds by (slice size, batch size), where the copy fits."""
        return {
            (key.slice_size, key.batch): key.batch / rate
            for key, rate in self.throughput.items()
            if key.copies == 1 and rate > 0
        }


def read_measurements(path: Path) -> tuple[ModelMeasurements, ...]:
    """Return one model per CSV file of a folder in ParvaGPU's columns. Raises TableError with file, row and column."""
    return tuple(_read_file(file) for file in (sorted(path.glob("*.csv")) if path.is_dir() else [path]))


def _read_file(path: Path) -> ModelMeasurements:
    throughput = {}
    for row in read_csv(path, COLUMNS, final_line_end=False).rows:
        size = row.integer("Mig instance", low=1)
        if size not in COMPUTE_SLICES:
            row.fail("Mig instance", "no size of a MIG instance", f"one of {', '.join(map(str, COMPUTE_SLICES))}")
        key = Configuration(size, row.integer("Batch size", low=1), row.integer("Workload Number", low=1))
        throughput[key] = row.number("Throughput", low=0.0)
    return ModelMeasurements(name=path.stem, throughput=throughput)


def instances(slice_size: int) -> int:
    """Return the number of slices of one size on an A100: 7, 3, 2, 1, 1 by NVIDIA's MIG profiles."""
    return {1: 7, 2: 3, 3: 2, 4: 1, 7: 1}[slice_size]
