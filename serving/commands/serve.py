"""Serve a trained model over gRPC."""

import json
import logging
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from interfere.commands.output import JsonFlag, emit, progress_note

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (unix seconds), level, logger, message, fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as one line of JSON."""
        document: dict[str, Any] = {
            "time": round(record.created, 6),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False, default=str)


def configure(log_format: str) -> None:
    """Log to standard error, as `text` or as `json`."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def tell_service_manager(state: str) -> None:
    """Tell systemd how the service is (a unit of Type=notify); without systemd, nobody."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        address = f"\0{address[1:]}" if address.startswith("@") else address  # @: without a file
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(state.encode(), address)


app = typer.Typer(add_completion=False)


@app.command()
def serve(
    model: Annotated[
        Path | None,
        typer.Option(
            help="Model folder, or a shipped model: cpu, gpu. Default: WORK/models/champion, else cpu.", metavar="MODEL"
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one. Default: 50051.")] = None,
    model_digest: Annotated[
        str | None,
        typer.Option(
            help="Serve these models only: sha256:..., several by commas (interfere models digest). Default: any.",
            metavar="DIGEST",
        ),
    ] = None,
    canary: Annotated[
        str | None,
        typer.Option(
            help="Scopes that a newly published model decides for first, several by commas. Default: all.",
            metavar="SCOPE",
        ),
    ] = None,
    store: Annotated[Path | None, typer.Option(help="SQLite file of the store. Default: WORK/store.db.")] = None,
    database: Annotated[
        str | None,
        typer.Option(help="PostgreSQL database that holds the store, for several servers.", metavar="ADDRESS"),
    ] = None,
    work: Annotated[Path | None, typer.Option(help="Workspace. Default: ./interfere-work.")] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(help="Port of Prometheus /metrics; -1: none. Default: 9464 of 127.0.0.1, none with --port 0."),
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="Log lines: text or json. Default: text.")] = None,
    callers: Annotated[
        Path | None, typer.Option(help="File of the callers that may ask (interfere callers). Default: this host's.")
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Answer everybody who reaches the server; beyond this machine also without TLS."
        ),
    ] = False,
    config: Annotated[Path | None, typer.Option(help="TOML file with any of the settings.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Serve a trained model over gRPC until SIGTERM or Ctrl-C; newly published models are taken while it runs.

    With --database it shares its store with other servers: postgresql://USER@HOST/NAME?password_file=FILE.

    Every setting can also be given as a variable: INTERFERE_THREADS, INTERFERE_MAX_CONCURRENT_RPCS,
    INTERFERE_GRACE_S, ...

    On the loopback address, without --callers, it writes a token file for each role; clients of the same user, and of
    the groups interfere-ROLE, find it by themselves.
    """
    # Matrices of the server have at most some hundred rows: threads of BLAS would wait for one another, and for a core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is imported, below
    from interfere.config import SHIPPED_GPU_MODEL, load_settings
    from interfere.serving.calls.listening import is_local
    from interfere.serving.calls.tokens import LocalTokens
    from interfere.serving.commands.serve import configure, tell_service_manager
    from interfere.serving.server import start_server
    from interfere.serving.workers.fork_server import leave_out_what_stays, return_freed_memory
    from interfere.tracing import start_tracing

    settings = load_settings(
        config,
        model=model,
        model_digest=model_digest,
        canary=canary,
        host=host,
        port=port,
        store=store,
        database=database,
        work=work,
        metrics_port=metrics_port,
        log_format=log_format,
        callers=callers,
        insecure=insecure or None,
    )
    return_freed_memory()
    configure(settings.log_format)
    start_tracing()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a server to look for a model
    by_files = settings.callers is None and is_local(settings) and not settings.insecure
    tokens = LocalTokens() if by_files else None
    server = start_server(settings, tokens)
    leave_out_what_stays()
    signal.signal(signal.SIGHUP, lambda *_: server.look_for_model())
    ready = {
        "address": server.address,
        "port": server.port,
        "metrics_port": server.metrics_port,
        "model_version": server.model_version,
        "model": str(server.model_path),
        "store": str(settings.store_address),
        "tokens": None if tokens is None else str(tokens.folder),
        "pid": os.getpid(),
    }
    if as_json:
        typer.echo(json.dumps(ready))  # one line: a program that starts a server reads until the first newline
    else:
        lines = [f"{name.replace('_', ' ')}: {value}" for name, value in ready.items() if value is not None]
        emit(ready, escape("\n".join(lines)), as_json=False)
        model_name = "gpu " if server.model_path == SHIPPED_GPU_MODEL else ""  # whose example it is
        progress_note(f"try: interfere match {model_name}--example --target {server.address}")
    server.run_until_signal(
        on_ready=lambda: tell_service_manager(f"READY=1\nSTATUS=serves {server.model_version} on {server.address}"),
        on_stop=lambda: tell_service_manager("STOPPING=1"),
    )
