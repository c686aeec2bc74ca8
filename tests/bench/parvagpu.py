"""ParvaGPU's table of an A100 (Lee et al., SC 2024): slowdowns of one to five copies of a model in one MIG slice.

Throughput is per copy, and 0 where the copies did not fit. What is known of a model from its rows with one copy:
n copies of batch b do the work of one of batch n·b, and each has the share g/n of a slice of g.
"""

import csv
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.data.importers.public_files import public

Floats = NDArray[np.float64]
COPIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesTable:
    """c cases, each a model in a slice at a batch size."""

    model: tuple[str, ...]  # c
    slice_size: Floats  # float64[c]: compute units of the slice, of 7
    batch: Floats  # float64[c]
    slowdown: Floats  # float64[c, 5] of one to five copies; NaN where it was not measured
    same_work: Floats  # float64[c, 5]: time of one copy at n times the batch ÷ its time at the batch
    slice_share: Floats  # float64[c, 5]: time of one copy in the n-th part of the slice ÷ its time in the slice
    most_work: Floats  # float64[c, 5]: n · throughput ÷ the most that one copy reaches at any batch, at least 1

    def features(self, n: int) -> Floats:
        """float64[c, 8]: what rows with one copy say of n copies, as logarithms."""
        k = n - 1
        ratios = (self.same_work[:, k], self.slice_share[:, k], self.most_work[:, k])
        of_two = (self.same_work[:, 1], self.slice_share[:, 1], self.most_work[:, 1])
        return np.column_stack([np.log([*ratios, *of_two]).T, np.log2(self.batch) / 4, np.log(self.slice_size)])


def load_copies() -> CopiesTable:
    """The table, or a skip that says how to get it."""
    throughput: dict[tuple[str, int, int, int], float] = {}
    for path in sorted(public("parvagpu").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                size, batch, copies = (int(row[name]) for name in ("Mig instance", "Batch size", "Workload Number"))
                if float(row["Throughput"]) > 0:
                    throughput[path.stem, size, batch, copies] = float(row["Throughput"])
    cases = sorted({key[:3] for key in throughput if key[3] == 1})
    solo = {key[:3]: value for key, value in throughput.items() if key[3] == 1}
    slowdown = [[solo[case] / throughput.get((*case, n), np.nan) for n in COPIES] for case in cases]
    known = [_from_one_copy(solo, *case) for case in cases]
    return CopiesTable(
        model=tuple(case[0] for case in cases),
        slice_size=np.array([case[1] for case in cases], dtype=np.float64),
        batch=np.array([case[2] for case in cases], dtype=np.float64),
        slowdown=np.array(slowdown),
        same_work=np.array([one[0] for one in known]),
        slice_share=np.array([one[1] for one in known]),
        most_work=np.array([one[2] for one in known]),
    )


def _from_one_copy(solo: dict[tuple[str, int, int], float], model: str, size: int, batch: int) -> list[list[float]]:
    """The three ratios of `CopiesTable` for one to five copies, interpolated between measured batches and slices."""
    here = solo[model, size, batch]
    batches = {b: value for (name, g, b), value in solo.items() if name == model and g == size}
    slices = {0: 0.0} | {g: value for (name, g, b), value in solo.items() if name == model and b == batch}
    log_batches, log_values = (np.log(np.array(each)) for each in zip(*sorted(batches.items()), strict=True))
    sizes, values = zip(*sorted(slices.items()), strict=True)
    most = max(batches.values())
    return [
        [n * here / float(np.exp(np.interp(np.log(n * batch), log_batches, log_values))) for n in COPIES],
        [here / float(np.interp(size / n, sizes, values)) for n in COPIES],
        [max(1.0, n * here / most) for n in COPIES],
    ]
