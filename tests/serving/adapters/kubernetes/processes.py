"""The adapter's commands as processes of their own, against the stand-in."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.serving.adapters.kubernetes.control_plane.api_server import ApiServer
from tests.waiting import PATIENCE_S

COMMAND = [sys.executable, "-c", "from interfere.serving.adapters.kubernetes.command import app; app()"]


class Processes:
    """Starts commands and kills what is left at the end."""

    def __init__(self, api: ApiServer, folder: Path) -> None:
        self._api, self._folder = api, folder
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """`interfere kubernetes ARGUMENTS`; its output goes to a log."""
        environment = {**os.environ, "KUBECONFIG": str(self._api.kubeconfig)}
        with self.log.open("ab") as log:
            process = subprocess.Popen([*COMMAND, *arguments], stdout=log, stderr=log, env=environment)
        self._started.append(process)
        return process

    @property
    def log(self) -> Path:
        """What all of them wrote."""
        return self._folder / "processes.log"

    def stop(self) -> None:
        """kill -9 of whatever still runs."""
        for process in self._started:
            process.kill()
            process.wait()

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        """Until a condition holds."""
        end_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end_s, self.log.read_text(errors="replace")[-3000:]
            time.sleep(0.1)
