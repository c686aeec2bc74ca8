"""Report to a server what a site's monitoring records."""

import logging
import signal
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interfere.commands.monitoring.options import TokenFile, describe_candidates, monitoring_settings
from interfere.commands.options import DEFAULT_WORK, Target, Work, connect, with_options
from interfere.commands.output import JsonFlag, emit, progress_note

if TYPE_CHECKING:
    from interfere.monitoring.settings import MonitoringSettings

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def sources() -> None:
    """Report what a site's monitoring records to a server, as it happens."""


@app.command()
@with_options("settings", partial(monitoring_settings, cell="5m"))
def prometheus(
    url: Annotated[str, typer.Argument(help="Address of Prometheus, such as http://host:9090.")],
    settings: "MonitoringSettings",
    site: Annotated[str, typer.Option(help="Name of the site: begins the ids of its observations.")] = "prometheus",
    since: Annotated[
        str, typer.Option(help="Where no state is kept yet, begin then: 2026-10-31, 2026-10-31T08:00, or 6h ago.")
    ] = "1h",
    state: Annotated[Path | None, typer.Option(help="State file. Default: WORK/watch-SITE.json.")] = None,
    work: Work = DEFAULT_WORK,
    token_file: TokenFile = None,
    once: Annotated[bool, typer.Option("--once", help="Report what is complete, then stop.")] = False,
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Report windows of jobs alone and in constant company to the server, from DCGM-exporter series in Prometheus.

    Prometheus is only read. A counter or a label that fits nothing recorded ends it with status 2. Killed and started
    again, it goes on where it was; nothing is counted twice.
    """
    from interfere.monitoring.preflight import PreflightError
    from interfere.monitoring.prometheus import PrometheusSource
    from interfere.monitoring.watcher import Watcher, describe, watch
    from interfere.time_text import start_s

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = replace(settings, site=site)
    state_file = state or work / f"watch-{site}.json"
    source = PrometheusSource(url, settings, token_file=token_file)
    now_s = time.time()
    lookback_s = now_s - start_s(since, now_s)
    with connect(target) as client:
        watcher = Watcher(source, client, settings, state_file, lookback_s=lookback_s)
        try:
            if once:
                reports = watcher.catch_up()
                document = {"cells": reports, "state": str(state_file)}
                emit(document, "\n".join(map(describe, reports)) or "nothing is complete yet", as_json=as_json)
                return
            stop = threading.Event()
            for name in (signal.SIGTERM, signal.SIGINT):
                signal.signal(name, lambda *_: stop.set())
            progress_note(f"watching {source.url}; state in {state_file}")
            watch(watcher, stop)
        except PreflightError:
            now_s = source.now_s()
            progress_note(describe_candidates(source, now_s - lookback_s, now_s))
            raise
