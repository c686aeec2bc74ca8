"""Options of the commands that read a site's monitoring, and the settings they make."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interfere.sharing_modes import SharingMode

if TYPE_CHECKING:
    from interfere.monitoring.settings import MonitoringSettings

ProgressOption = Annotated[
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
LabelMap = Annotated[
    list[str] | None,
    typer.Option(
        "--same-label", help="Labels that name the same job: label of DCGM=label of the counter. Repeat for several."
    ),
]
DeviceType = Annotated[str, typer.Option("--device-type", help="Device type; default: by the label modelName.")]
Mode = Annotated[SharingMode, typer.Option(help="How jobs share a device on this site.")]
MinWindow = Annotated[str, typer.Option(help="Shortest time of constant company that counts.")]
ExporterDelay = Annotated[
    str,
    typer.Option(
        help="Age that an exporter's labels may have; 30s for older dcgm-exporters, which collect ahead of the scrape."
    ),
]
Step = Annotated[str, typer.Option(help="Step at which an expression is evaluated.")]
TokenFile = Annotated[Path | None, typer.Option(help="File with a bearer token for Prometheus.")]


def monitoring_settings(
    *,
    progress: str,
    by: str,
    label_map: list[str] | None,
    device: str,
    mode: SharingMode,
    cell: str,
    min_window: str,
    exporter_delay: str,
    step: str,
    site: str = "prometheus",
) -> "MonitoringSettings":
    """Return the settings of a reading. Raises InvalidInputError that names what is wrong."""
    from interfere.monitoring.settings import MonitoringSettings, duration_s, parse_label_map

    return MonitoringSettings(
        progress=progress.strip(),
        by=by,
        label_map=parse_label_map(tuple(label_map or ())),
        device_type=device,
        mode=mode,
        site=site,
        cell_s=duration_s(cell),
        min_window_s=duration_s(min_window),
        exporter_delay_s=duration_s(exporter_delay),
        step_s=duration_s(step),
    )
