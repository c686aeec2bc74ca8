"""Ask a server which sharing mode jobs should have on a device."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from interfere.commands.options import KnownDeviceType, Target, connect, note_mistyped_workloads
from interfere.commands.output import JsonFlag, emit
from interfere.reports.document import Part, Sentence, text_table

if TYPE_CHECKING:
    from interfere.records.mode_advice import JobUnderMode, ModeAdvice, ModeMeasurement, ModeOutlook

app = typer.Typer(add_completion=False)
GIB = 2.0**30
MAX_MEASUREMENTS = 5  # printed; --json has all


@app.command()
def advise(
    jobs: Annotated[str, typer.Option(help="Workloads that would share the device, by commas; one twice: two copies.")],
    device: KnownDeviceType = "",
    latency_target: Annotated[
        list[str] | None, typer.Option(metavar="JOB=SECONDS", help="Longest time of one step of a job (repeatable).")
    ] = None,
    risk: Annotated[float, typer.Option(help="Largest probability of missing a latency target.")] = 0.05,
    memory_gib: Annotated[
        float | None, typer.Option(help="Memory of the device, to tell whether the jobs fit.")
    ] = None,
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask a server which sharing mode jobs should have on a device, and what to measure to be surer."""
    names = [name.strip() for name in jobs.split(",") if name.strip()]
    with connect(target) as client:
        advice = client.advise_mode(
            names,
            device_type=device,
            latency_targets_s=_targets(latency_target or [], names),
            risk=risk,
            device_memory_bytes=math.nan if memory_gib is None else memory_gib * GIB,
        )
        if any(outlook.reason for outlook in advice.modes):
            note_mistyped_workloads(client, names)
    emit(advice, _page(advice), as_json=as_json)


def _targets(given: list[str], names: list[str]) -> dict[int, float]:
    """Return the latency target of each job by its place; a target of a workload holds for every copy of the
    workload."""
    targets: dict[int, float] = {}
    for text in given:
        name, _, seconds = text.rpartition("=")
        try:
            value = float(seconds)
        except ValueError:
            raise typer.BadParameter(f"{text!r}: write JOB=SECONDS", param_hint="--latency-target") from None
        if name not in names:
            raise typer.BadParameter(f"{name!r} is none of the jobs: {', '.join(names)}", param_hint="--latency-target")
        targets |= {k: value for k, each in enumerate(names) if each == name}
    return targets


def _page(advice: "ModeAdvice") -> list[Part]:
    """Return the table of the sharing modes, the reasons for unknown modes, the recommendation, and what to measure."""
    rows = []
    for outlook in advice.modes:
        best = "" if math.isnan(outlook.probability_best) else f"{outlook.probability_best:.0%}"
        rows.append((outlook.mode, outlook.source.value, _slowdowns(outlook), _throughput(outlook), best))
    table = text_table("", ("mode", "source", "slowdowns (5-95 %)", "throughput (5-95 %)", "best"), rows)
    lines = [f"{modes}: {reason}" for reason, modes in _modes_by_reason(advice).items()]
    lines += [f"on {advice.device_type}: {advice.recommendation.reason}"]
    lines += [f"measure: {_measurement(each)}" for each in advice.measure[:MAX_MEASUREMENTS]]
    left_out = len(advice.measure) - MAX_MEASUREMENTS
    lines += [f"and {left_out} more: --json"] if left_out > 0 else []
    return [table, *map(Sentence, lines)]


def _modes_by_reason(advice: "ModeAdvice") -> dict[str, str]:
    """Return the sharing modes of which nothing is known, by the reason."""
    reasons: dict[str, str] = {}
    for outlook in advice.modes:
        if outlook.reason:
            before = f"{reasons[outlook.reason]}, " if outlook.reason in reasons else ""
            reasons[outlook.reason] = before + outlook.mode
    return reasons


def _slowdowns(outlook: "ModeOutlook") -> str:
    return "\n".join(_slowdown(job) for job in outlook.jobs) if outlook.known else "–"


def _slowdown(job: "JobUnderMode") -> str:
    place = f" in {job.slice_type}" if job.slice_type else ""
    misses = "" if math.isnan(job.miss_probability) else f", misses its target {job.miss_probability:.0%}"
    return f"{job.workload}{place} {job.slowdown:.2f} × ({job.lower:.2f}-{job.upper:.2f}){misses}"


def _throughput(outlook: "ModeOutlook") -> str:
    if not outlook.known:
        return "–"
    fits = "" if math.isnan(outlook.feasibility) or outlook.feasibility > 0.5 else "; does not fit"
    return f"{outlook.throughput:.2f} ({outlook.lower:.2f}-{outlook.upper:.2f}){fits}"


def _measurement(measurement: "ModeMeasurement") -> str:
    """Return a recommended measurement and its expected gain, in words."""
    gain = measurement.expected_gain
    worth = "nothing is known of it yet" if math.isnan(gain) else f"expected gain of throughput {gain:.3f}"
    what = f"{', '.join(measurement.workloads)} {measurement.kind.value} on {measurement.device_type}"
    return f"{what}, for {measurement.mode or 'every mode'} ({worth})"
