"""Options of the commands that read a site's monitoring, and the settings they make."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interfere.sharing_modes import DEFAULT_MODE, SharingMode

if TYPE_CHECKING:
    from interfere.monitoring.prometheus import PrometheusSource
    from interfere.monitoring.saved_answers import SavedAnswers
    from interfere.monitoring.settings import MonitoringSettings

TokenFile = Annotated[Path | None, typer.Option(help="File with a bearer token for Prometheus.")]
Progress = Annotated[
    str,
    typer.Option(
        "--progress",
        help="What counts the steps of jobs: a counter, such as train_steps_total or steps{app='x'}; or an expression "
        "of steps per second, such as 'sum by (namespace, pod) (rate(steps_total[1m]))'.",
    ),
]
By = Annotated[
    str,
    typer.Option(
        help="What names the workload of a job: `workload`, the pod's name without hashes and ordinals; or a label "
        "such as container or app; several joined by +."
    ),
]
Workloads = Annotated[
    Path | None,
    typer.Option(
        help="CSV `pattern,workload`, as for the import of jobs and `whatif`: which workload a job is, by its name in "
        "full or by what --by makes of it; jobs that no pattern matches keep the latter."
    ),
]
LabelMap = Annotated[
    list[str] | None,
    typer.Option(
        "--same-label", help="Labels that name the same job: label of DCGM=label of the counter. Repeat for several."
    ),
]
ExporterDelay = Annotated[
    str,
    typer.Option(
        help="Age that an exporter's labels may have; 30s for older dcgm-exporters, which collect ahead of the scrape."
    ),
]


def monitoring_settings(
    progress: Progress = "",
    by: By = "workload",
    workloads: Workloads = None,
    label_map: LabelMap = None,
    device: Annotated[str, typer.Option("--device-type", help="Device type; default: by the label modelName.")] = "",
    mode: Annotated[SharingMode, typer.Option(help="How jobs share a device on this site.")] = DEFAULT_MODE,
    cell: Annotated[
        str,
        typer.Option(help="Read this much time at once; windows are cut at its multiples. Less needs less memory."),
    ] = "1h",
    min_window: Annotated[str, typer.Option(help="Shortest time of constant company that counts.")] = "60s",
    exporter_delay: ExporterDelay = "0s",
    step: Annotated[str, typer.Option(help="Step at which an expression is evaluated.")] = "15s",
) -> "MonitoringSettings":
    """Return the settings of a reading from the values of its options. Raises InvalidInputError for a wrong value."""
    from interfere.data.importers.site_traces import read_workload_map
    from interfere.monitoring.settings import MonitoringSettings, parse_label_map
    from interfere.time_text import duration_s

    return MonitoringSettings(
        progress=progress.strip(),
        by=by,
        workloads=None if workloads is None else read_workload_map(workloads),
        label_map=parse_label_map(tuple(label_map or ())),
        device_type=device,
        mode=mode,
        cell_s=duration_s(cell),
        min_window_s=duration_s(min_window),
        exporter_delay_s=duration_s(exporter_delay),
        step_s=duration_s(step),
    )


def describe_candidates(source: "PrometheusSource | SavedAnswers", start_s: float, end_s: float) -> str:
    """Return a line that names what may count the jobs' steps, the counters of most jobs first."""
    found = source.possible_counters(start_s, end_s)
    if not found:
        return "no counter of a job on a device was found that may count steps"
    return f"counters of jobs that may count steps: {', '.join(found)}; the first: --progress {found[0]}"
