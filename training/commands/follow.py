"""Publish the version that an alias of the registry names, whenever it moves."""

import base64
import binascii
import hashlib
import hmac
import os
import signal
import threading
import time
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Annotated, Any

import typer

from interfere.commands.options import DEFAULT_WORK, Target, Work, connect
from interfere.commands.output import progress_note
from interfere.errors import InterfereError, InvalidInputError, UnfitError
from interfere.training.commands.options import Tracking

MAX_BODY = 64 * 1024  # of a webhook call; MLflow sends some hundred bytes
READ_TIMEOUT_S = 5.0  # of a webhook call
MAX_AGE_S = 300.0  # of a signed webhook call; an older one may be a replayed one


def follow(
    work: Work = DEFAULT_WORK,
    alias: Annotated[str, typer.Option(help="Alias of the registered model to follow.")] = "champion",
    folder: Annotated[
        Path | None, typer.Option(help="Folder that servers watch. Default: WORK/models/champion.", show_default=False)
    ] = None,
    tracking: Tracking = None,
    every_s: Annotated[float, typer.Option(min=0.1, help="Time between two looks, seconds.")] = 10.0,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Look at once where MLflow's webhook calls there.")
    ] = "",
    secret_file: Annotated[
        Path | None, typer.Option(help="File with the secret that the webhook signs with.", show_default=False)
    ] = None,
    target: Target = None,
    note: Annotated[
        bool, typer.Option("--note", help="Write what the server at --target says of a version to the version.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Look once, then stop.")] = False,
) -> None:
    """Publish the version that an alias of the registry names, whenever it moves."""
    from interfere.features.pair import FeatureEncoder
    from interfere.training.publishing.model_registry import AliasFollower, champion_folder
    from interfere.training.publishing.tracking import mlflow_connection

    published, listener = folder or champion_folder(work), None
    asked, ended = threading.Event(), threading.Event()
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # the next look tries again
    with mlflow_connection(work, tracking) as mlflow:
        follower = AliasFollower(
            mlflow, alias, published, FeatureEncoder().fingerprint, connect=partial(connect, target) if note else None
        )
        if once:
            progress_note(follower.look() or f"nothing new: {published}")
            return

        def end(*_: object) -> None:
            ended.set()
            asked.set()

        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, end)
        if listen:
            listener = WebhookListener(*_address(listen), _secret(secret_file), asked)
            progress_note(f"webhook: port {listener.port}")
        progress_note(f"{alias} is followed into {published}, every {every_s:g} s; stop with Ctrl-C")
        failed = ""
        while not ended.is_set():
            try:
                if changed := follower.look():
                    progress_note(changed)
                failed = ""
            except InterfereError as error:
                if error.one_line != failed:  # a failure that lasts is told once
                    progress_note(f"{alias} is not published: {error.one_line}")
                failed = error.one_line
            asked.wait(every_s)
            asked.clear()
    if listener:
        listener.close()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InvalidInputError("not an address", value=text, remedy="--listen 127.0.0.1:8085; port 0 takes a free one")
    return host.strip("[]"), int(port)


def _secret(file: Path | None) -> str:
    try:
        secret = "" if file is None else file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError("the secret cannot be read", value=f"{file}: {error}", remedy="--secret-file") from None
    if not secret:
        raise InvalidInputError("a webhook needs a secret", value=file, remedy="give MLflow's one: --secret-file FILE")
    return secret


class WebhookListener:
    """Takes the calls of an MLflow webhook, one after another, and asks for a look; see "Webhooks" of MLflow's manual.

    A call says nothing but that it is time to look: whoever holds the secret can cause looks, and nothing else.
    """

    def __init__(self, host: str, port: int, secret: str, asked: threading.Event) -> None:
        """Listen, until it is closed. Raises UnfitError where the address cannot be used."""

        class Handler(BaseHTTPRequestHandler):
            timeout = READ_TIMEOUT_S
            server_version, sys_version = "interfere", ""

            def do_POST(self) -> None:
                status = self._answer()
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def _answer(self) -> int:
                length = self.headers.get("Content-Length", "")
                if not length.isdigit() or int(length) > MAX_BODY:
                    return 413
                headers = {name: self.headers.get(f"X-MLflow-{name}", "") for name in ("Signature", "Timestamp")}
                delivery, body = self.headers.get("X-MLflow-Delivery-Id", ""), self.rfile.read(int(length))
                if not is_signed(body, delivery, headers["Timestamp"], headers["Signature"], secret, time.time()):
                    return 401
                asked.set()
                return 204

            def log_message(self, *_: Any) -> None:
                """Log nothing: a look logs what it did."""

        try:
            self._server = HTTPServer((host, port), Handler)
        except OSError as error:
            raise UnfitError(
                f"cannot listen there ({error.strerror})", value=f"{host}:{port}", remedy="take another port: --listen"
            ) from None
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="webhook", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


def is_signed(body: bytes, delivery: str, timestamp: str, signature: str, secret: str, now_s: float) -> bool:
    """Whether a webhook call was signed with the secret, not long ago: HMAC-SHA256 of delivery, time and body."""
    if not timestamp.isdigit() or abs(now_s - int(timestamp)) > MAX_AGE_S:
        return False
    wanted = hmac.new(secret.encode(), f"{delivery}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    with suppress(ValueError, binascii.Error):
        return hmac.compare_digest(base64.b64decode(signature.removeprefix("v1,"), validate=True), wanted)
    return False
