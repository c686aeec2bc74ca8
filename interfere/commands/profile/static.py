"""Predict what a step of a model costs on a device from a trace, without running it: `interfere profile static`."""

import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interfere.commands.output import JsonFlag, emit
from interfere.reports.document import Part, Sentence, Tone, text_table

if TYPE_CHECKING:
    from interfere.records import JobProfile

MIB = float(2**20)
MAX_OPERATORS = 8  # in the table that is printed


def static(
    model: Annotated[str, typer.Argument(help='module:factory, or a published name: "ResNet-50 (batch size 32)".')],
    device: Annotated[str, typer.Option("--device-type", help="Device type: k80 to b200.")] = "h100",
    workload: Annotated[str, typer.Option(help="Workload: the name in the profile. Default: the model's.")] = "",
    out: Annotated[
        Path | None, typer.Option(help="Table folder to add it to; a measured job gains the static facts.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Trace a PyTorch model under fake tensors: FLOPs, traffic, memory by phase, roofline time. Nothing runs."""
    from interfere.profiling.static.profiler import StaticProfiler
    from interfere.profiling.static.profiles import add_static
    from interfere.records.documents import to_document

    profile = replace(StaticProfiler(device).profile_solo(model).profile, workload=workload or model)
    if out is not None:
        add_static(out, profile)
    emit({"profile": to_document(profile), "written": str(out) if out else None}, _costs(profile, out), as_json=as_json)


def _costs(profile: "JobProfile", out: Path | None) -> list[Part]:
    """Return the cost of a step, and the operators with the largest share of it."""
    memory = (
        (f"{name} memory", f"{getattr(profile, f'memory_{name}_bytes') / MIB:,.0f} MiB")
        for name in ("model", "gradient", "optimizer", "activation")
    )
    operator_s: dict[str, float] = defaultdict(float)
    operator_calls: dict[str, float] = defaultdict(float)
    for kernel in profile.kernels:
        operator_s[kernel.name] += kernel.mean_s * kernel.count
        operator_calls[kernel.name] += kernel.count
    total_s = math.fsum(operator_s.values())
    largest = sorted(operator_s.items(), key=lambda item: -item[1])[:MAX_OPERATORS]
    rows = [
        ("step, by the roofline", f"{profile.step_time_s * 1e3:.3g} ms"),
        ("arithmetic", f"{profile.flops_per_step / 1e9:,.4g} GFLOP a step"),
        ("memory traffic", f"{profile.bytes_per_step / 2**30:,.4g} GiB a step"),
        *memory,
        ("peak memory", f"{profile.static_memory_peak_bytes / MIB:,.0f} MiB, without context and workspaces"),
        *(
            (name, f"{seconds / total_s:.0%} of the step, {operator_calls[name]:,.0f} calls")
            for name, seconds in largest
        ),
    ]
    table = text_table(f"{profile.workload} on {profile.device_type}, nothing run", ("what", "how much"), rows)
    return [table, *([Sentence(f"wrote {out}", tone=Tone.NOTE)] if out else [])]
