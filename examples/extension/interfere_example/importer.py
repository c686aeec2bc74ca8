"""Reads the laboratory's CSV (job, neighbour, device, iterations_per_s) into a table: python lab.py FILE FOLDER."""

import sys
from pathlib import Path

from interfere.data.importers.import_result import ImportResult, dropped
from interfere.data.importers.import_writer import write_import
from interfere.data.importers.strict_reading import read_csv
from interfere.records import JobProfile, PairMeasurement


def import_lab(path: Path) -> ImportResult:
    """Profiles from rows without a neighbour, slowdowns from the others: rate alone ÷ rate beside the neighbour."""
    file = read_csv(path, ("job", "neighbour", "device", "iterations_per_s"))
    rows = [(row, row.number("iterations_per_s", low=0.0, exclude_low=True)) for row in file.rows]
    alone = {(row.text("device"), row.text("job")): rate for row, rate in rows if not row.fields["neighbour"]}
    shared = [(row, rate) for row, rate in rows if row.fields["neighbour"]]
    pairs = [
        PairMeasurement(
            victim=row.text("job"),
            neighbour=row.text("neighbour"),
            device_type=row.text("device"),
            mode="mps",
            slowdown=alone[row.text("device"), row.text("job")] / rate,
            source="lab",
            campaign=file.source.campaign,
        )
        for row, rate in shared
        if all((row.text("device"), row.text(side)) in alone for side in ("job", "neighbour"))
    ]
    return ImportResult(
        source_format="lab",
        files=(file.source,),
        format_notes=("iterations/s; slowdown = alone / beside the neighbour, under CUDA MPS",),
        jobs=tuple(
            JobProfile(workload=job, device_type=device, step_time_s=1 / rate, source="lab")
            for (device, job), rate in alone.items()
        ),
        pairs=tuple(pairs),
        notices=(dropped(len(shared) - len(pairs), "pairs", "a job of the pair was not measured alone"),),
    )


if __name__ == "__main__":
    source, folder = map(Path, sys.argv[1:])
    for written in write_import(folder, import_lab(source)):
        print(written)
