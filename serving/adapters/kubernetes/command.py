"""Let Kubernetes place pods on shared GPUs as decisions say."""

import datetime as dt
import json
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interfere.commands.output import JsonFlag, emit, progress_note
from interfere.strict_json import json_value

if TYPE_CHECKING:
    from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi
    from interfere.serving.adapters.kubernetes.records import Pod
    from interfere.serving.adapters.kubernetes.settings import KubernetesSettings
    from interfere.serving.adapters.kubernetes.writes import PodChange
    from interfere.serving.adapters.round import Round

    KubernetesRound = Round[Pod, PodChange]

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
app = typer.Typer(add_completion=False, no_args_is_help=True)

Config = Annotated[Path | None, typer.Option(help="TOML file with settings.")]
Server = Annotated[str | None, typer.Option(help="Address of the policy server. Default: 127.0.0.1:50051.")]
Placement = Annotated[str | None, typer.Option("--placement", help="What is done to pods: observe (default) or gate.")]


Certificates = Annotated[
    Path | None, typer.Option(help="Mounted folder with tls.crt and tls.key, read again when they change.")
]


@app.command()
def controller(
    config: Config = None,
    server: Server = None,
    mode: Placement = None,
    window: Annotated[float | None, typer.Option(help="Longest time that a pod is gated, in seconds.")] = None,
    interval: Annotated[float | None, typer.Option(help="Seconds between rounds. Default: 2.")] = None,
    journal: Annotated[Path | None, typer.Option(help="File of the journal that `report` sums up.")] = None,
    port: Annotated[int | None, typer.Option(help="Port of health, metrics and marks. Default: none.")] = None,
    certificates: Certificates = None,
    once: Annotated[bool, typer.Option("--once", help="One round that changes nothing, then stop.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Advise the cluster until SIGTERM or Ctrl-C."""
    from interfere.client import PolicyClient
    from interfere.serving.adapters.kubernetes.port import Controller
    from interfere.serving.adapters.round import stop_on_signals

    given = {"server": server, "mode": mode, "window_s": window, "interval_s": interval, "journal": journal}
    settings, api = _start(config, given | {"metrics_port": port})
    with PolicyClient(settings.server, timeout_s=settings.timeout_s) as client:
        replica = Controller(settings, api, client, dry_run=once)
        if once:
            replica.cluster.start()
            done = replica.advisor.round()
            emit(document(done), text(done), as_json=as_json)
            return
        stop_on_signals(replica.stop)
        if settings.metrics_port:
            replica.serve(settings.metrics_port, certificates=certificates)
        progress_note(f"{settings.mode.value} {settings.cluster} every {settings.interval_s:g} s; {settings.server}")
        replica.run(lambda done: _print_round(done, as_json=as_json))


@app.command()
def webhook(
    config: Config = None,
    port: Annotated[int, typer.Option(help="Port of the webhook.")] = 8443,
    name: Annotated[str, typer.Option("--service", help="Name of the Service and the Secret.")] = "interfere-webhook",
    configuration: Annotated[str, typer.Option(help="The MutatingWebhookConfiguration.")] = "interfere",
    host: Annotated[
        list[str] | None,
        typer.Option(help="One more name or address of the certificate: of the configuration's `url`, if it has one."),
    ] = None,
    certificates: Certificates = None,
    every: Annotated[float, typer.Option(help="Seconds between two looks at the certificates.")] = 15.0,
) -> None:
    """Gate pods that opted in, over TLS with certificates of its own, or with mounted ones."""
    from interfere.serving.adapters.kubernetes.webhook import (
        CertificateKeeper,
        MountedCertificates,
        review,
        until_ready,
    )
    from interfere.serving.adapters.round import repeat, stop_on_signals
    from interfere.serving.http_server import HttpServer, healthy

    stop = stop_on_signals()
    refresh: Callable[[], object]
    if certificates is not None:
        settings = _settings(config, {})
        mounted = MountedCertificates(certificates)
        tls, refresh = mounted.context, mounted.refresh
    else:
        settings, api = _start(config, {})
        keeper = CertificateKeeper(api, settings.namespace, name, configuration, hosts=host or ())
        until_ready(keeper, stop)
        tls, refresh = keeper.context, lambda: keeper.refresh(dt.datetime.now(dt.UTC))
    routes = {
        ("POST", "/mutate"): lambda request: review(request, settings),
        ("GET", "/healthz"): healthy,
    }
    listener = HttpServer(routes, port, tls=tls)
    listener.start()
    progress_note(f"the webhook listens on {listener.port}")
    repeat("certificates", every, refresh, stop)
    listener.stop()


@app.command()
def release(
    config: Config = None,
    overdue: Annotated[
        bool, typer.Option("--overdue", help="Only pods past their window, as the CronJob does.")
    ] = False,
    seconds: Annotated[
        float, typer.Option("--for", help="With --overdue: go on for so many seconds while pods are held.")
    ] = 0.0,
    webhook: Annotated[
        str | None,
        typer.Option(
            help="MutatingWebhookConfiguration to delete first, so that no new pod is gated: before an uninstall."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Leave every gated pod to Kubernetes at once: no gate, an unrestricted claim. For rollback; opt out first."""
    from interfere.serving.adapters.kubernetes.port import controller_metrics
    from interfere.serving.adapters.kubernetes.releasing import release_for_good, release_overdue, release_pods

    settings, api = _start(config, {})
    if webhook is not None:
        done = release_for_good(api, settings, controller_metrics(), webhook)
    elif overdue:
        done = release_overdue(api, settings, controller_metrics(), seconds)
    else:
        done = release_pods(api, settings, controller_metrics(), api.time_s(), every=True)
    document = {"released": done.released, "refused": done.rejected, "still_gated": done.still_gated}
    emit(document, f"{done.released} pods released, {done.rejected} had moved on", as_json=as_json)


@app.command()
def report(
    journal: Annotated[Path, typer.Option(help="The journal of the controller.")],
    days: Annotated[float, typer.Option(help="How many days to read.")] = 14.0,
    as_json: JsonFlag = False,
) -> None:
    """Sum up what was decided, where pods ran, and predicted against measured slowdowns."""
    from interfere.serving.adapters.journal import read_journal, report_document, summarise

    summary = summarise(read_journal(journal, time.time() - days * 86_400))
    emit(asdict(summary), report_document(summary), as_json=as_json)


@app.command()
def sidecar(
    spool: Annotated[Path, typer.Option("--marks", help="File that the job marks its steps in.")],
    controller: Annotated[str, typer.Option(help="HOST:PORT of the controller's headless Service.")],
    authority: Annotated[
        Path | None, typer.Option("--ca", help="CA certificate of the controller, where it answers over TLS.")
    ] = None,
    every: Annotated[float, typer.Option(help="Seconds between two deliveries.")] = 2.0,
) -> None:
    """Send a job's step marks to the controller; runs beside the job."""
    from interfere.serving.adapters.kubernetes.marks import SpoolSender, addresses, send_until_stopped
    from interfere.serving.adapters.round import stop_on_signals

    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    host, _, port = controller.rpartition(":")
    if not host or not port.isdecimal():
        raise typer.BadParameter(f"controller: {controller!r} is no HOST:PORT; e.g. interfere-marks.interfere:8080")
    tls = ssl.create_default_context(cafile=authority) if authority is not None else None
    sender = SpoolSender(spool, lambda: addresses(host, int(port)), host=host, tls=tls)
    send_until_stopped(sender, every, stop_on_signals())


def document(done: "KubernetesRound") -> dict[str, Any]:
    """Return the report of a round as a document for --json."""
    return {
        "at_s": done.at_s,
        "decisions": [
            {
                "pod": each.job.key,
                "workload": each.job.workload,
                "decision": each.action.kind.value,
                "device": each.action.device_id,
                "partner": _pod_name(each.action.partner_id),
                "slowdown": each.action.slowdown,
                "reason": each.action.reason,
                "decision_id": each.decision_id,
            }
            for each in done.decisions
        ],
        "changed": [
            {"pod": change.pod.key, "writes": [write.kind.value for write in change.writes]} for change in done.changes
        ],
        "rejected": [{"pod": _pod_name(each.job_id), "message": each.message} for each in done.rejected],
        "left_to_kubernetes": dict(done.left_out),
        "observations": dict(done.observations),
    }


def text(done: "KubernetesRound") -> str:
    """Return the report of a round as text, with one line for each changed pod."""
    changed = {change.pod.id for change in done.changes}
    lines = [
        f"{each.job.key} {each.job.workload}: {each.action.kind.value.replace('_', ' ')} {each.action.device_id} "
        f"{each.action.reason}"
        for each in done.decisions
        if each.job.id in changed
    ]
    lines += [f"{_pod_name(each.job_id)}: {each.message}" for each in done.rejected]
    return "\n".join(lines) or "nothing to do"


def _pod_name(job_id: str) -> str:
    """Return namespace/name of the pod with a job's id."""
    return job_id.rpartition("/")[0]


def _print_round(done: "KubernetesRound", *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(json_value(document(done))))
    elif done.changes or done.rejected:
        typer.echo(text(done))


def _settings(config: Path | None, given: Mapping[str, object]) -> "KubernetesSettings":
    from interfere.serving.adapters.kubernetes.settings import KubernetesSettings

    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    return KubernetesSettings.load(config, given)


def _start(config: Path | None, given: Mapping[str, object]) -> "tuple[KubernetesSettings, ClusterApi]":
    from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi

    settings = _settings(config, given)
    return settings, ClusterApi(settings.timeout_s, settings.writes_per_s, settings.burst)
