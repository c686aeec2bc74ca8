"""Choose the MIG slice and the number of copies of a model."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interfere.commands.output import JsonFlag, emit
from interfere.reports.document import Sentence, Table, text_table
from interfere.reports.numbers import format_digits

if TYPE_CHECKING:
    from interfere.predict.copies.advice import CopiesAdvice

app = typer.Typer(add_completion=False)


@app.command()
def advise_copies(
    model: Annotated[
        Path, typer.Argument(metavar="FILE", help="CSV of the model in ParvaGPU's columns: rows of one copy.")
    ],
    others: Annotated[
        Path, typer.Option("--data", help="Tables of other models in one folder: what copies of them do.")
    ],
    batch: Annotated[int, typer.Option(min=1, help="Batch size of the requests.")],
    latency_target: Annotated[float, typer.Option(help="Longest time of one batch, seconds.")],
    whole_gpu: Annotated[
        bool, typer.Option("--whole-gpu/--slice", help="Throughput of a GPU divided into such slices, or of one slice.")
    ] = False,
    risk: Annotated[float, typer.Option(help="Highest accepted probability that the target is missed.")] = 0.05,
    as_json: JsonFlag = False,
) -> None:
    """Say which MIG slice a model should have and how many copies of it, and what to measure to be surer."""
    from interfere.predict.copies.advice import ThroughputOf, advise_measured_model
    from interfere.predict.copies.measurements import read_measurements

    (own,) = read_measurements(model)
    advice = advise_measured_model(
        own,
        read_measurements(others),
        batch=batch,
        target_s=latency_target,
        throughput_of=ThroughputOf.GPU if whole_gpu else ThroughputOf.SLICE,
        risk=risk,
    )
    document = asdict(advice)
    document["configuration"] = advice.configuration._asdict()
    document["measure"] = advice.measure._asdict() if advice.measure else None
    document["outlooks"] = [asdict(each) | {"configuration": each.configuration._asdict()} for each in advice.outlooks]
    emit(document, [_table(advice), Sentence(_text(advice))], as_json=as_json)


def _table(advice: "CopiesAdvice") -> Table:
    """Return a table of the expected latency of every number of copies in every slice."""
    rows = []
    for each in advice.outlooks:
        latency, lower, upper = (format_digits(1e3 * one) for one in (each.latency_s, each.lower_s, each.upper_s))
        interval = f"{latency} ({lower}-{upper})"
        size, _, copies = each.configuration
        rows.append((f"{size}g", str(copies), interval, f"{each.slowdown:.2f}", f"{each.good_probability:.0%}"))
    return text_table("", ("slice", "copies", "latency, ms (90 %)", "slowdown", "good"), rows)


def _text(advice: "CopiesAdvice") -> str:
    size, batch, copies = advice.configuration
    unmet = ["no configuration is expected to keep the latency target; the one of least latency:"]
    lines = [
        *(unmet if advice.good_probability == 0.0 else ()),
        f"{copies} {'copy' if copies == 1 else 'copies'} in a slice of {size}g, batch {batch}: "
        f"{format_digits(advice.throughput)} requests/s, {format_digits(1e3 * advice.latency_s)} ms a batch",
        f"misses the latency target with probability {advice.miss_probability:.0%}; "
        f"within 5 % of the best with probability {advice.good_probability:.0%}",
    ]
    if advice.measure is not None and not math.isclose(advice.good_probability, 1.0):
        lines.append(
            f"measure next: {advice.measure.copies} copies in {advice.measure.slice_size}g, add the row, ask again"
        )
    return "\n".join(lines)
