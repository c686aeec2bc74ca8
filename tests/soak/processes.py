"""A server in a process of its own, and a reporter that writes down what was acknowledged."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from interfere.client import PolicyClient
from interfere.errors import InterfereError
from interfere.records import ObservationResult, Progress
from interfere.store.store import StoreAddress
from tests.models import DEVICE_TYPE, expected
from tests.waiting import PATIENCE_S

PAIRS = [(v, n) for v in ("infer", "stream", "gemm", "train") for n in ("infer", "stream", "gemm")]


@dataclass(slots=True)
class Served:
    """A running server."""

    process: subprocess.Popen[str]
    address: str

    def kill(self) -> None:
        """As the out-of-memory killer does."""
        self.process.kill()
        self.process.communicate()


def serve_command(*options: str) -> list[str]:
    """`interfere serve` on a free port, which prints a line of JSON with its address."""
    return [sys.executable, "-m", "interfere", "serve", "--insecure", "--json", "--port", "0", *options]


@contextmanager
def serving(model: Path, store: StoreAddress, work: Path | None = None) -> Iterator[Served]:
    """Started by the command line; killed at the end."""
    process = start(model, store, work)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    served = Served(process, json.loads(line)["address"])
    try:
        yield served
    finally:
        served.kill()


@contextmanager
def serving_with(folder: Path, **settings: object) -> Iterator[Served]:
    """A server with any settings, its log in `folder`; ended by SIGTERM, with status 0."""
    given = {f"INTERFERE_{name.upper()}": str(value) for name, value in settings.items()}
    command, environment = serve_command("--work", str(folder)), {**os.environ, **given}
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, (folder / "server.log").read_text()
    try:
        yield Served(process, json.loads(line)["address"])
    except BaseException:
        print((folder / "server.log").read_text()[-20_000:])  # an internal error names its cause there alone
        raise
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, (folder / "server.log").read_text()[-5000:]


def start(model: Path, store: StoreAddress, work: Path | None = None) -> subprocess.Popen[str]:
    """`interfere serve --json` on a free port."""
    held = {"INTERFERE_STORE" if isinstance(store, Path) else "INTERFERE_DATABASE": str(store)}
    folder = {} if work is None else {"INTERFERE_WORK": str(work)}
    return subprocess.Popen(
        serve_command("--model", str(model)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **held, **folder},
    )


def shared(name: str, k: int) -> Progress:
    """A window of one of a few pairs, a little slower than the model says."""
    victim, neighbour = PAIRS[k % len(PAIRS)]
    return Progress(
        observation_id=name,
        job_id=f"j{k % 7}",
        workload=victim,
        device_type=DEVICE_TYPE,
        company=(neighbour,),
        start_s=float(k),
        end_s=float(k + 10),
        slowdown=expected(victim, neighbour) * (1.0 + 0.02 * (k % 4)),
    )


@dataclass(slots=True)
class Reporter(threading.Thread):
    """Sends batches until the server is gone. `sent`: all it ever tried, `acknowledged`: what was answered."""

    address: str
    prefix: str
    sent: dict[str, Progress] = field(default_factory=dict)
    acknowledged: dict[str, ObservationResult] = field(default_factory=dict)

    def __post_init__(self) -> None:
        threading.Thread.__init__(self, daemon=True)

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        k = 0
        with PolicyClient(self.address, timeout_s=PATIENCE_S) as client:
            while True:
                batch = [shared(f"{self.prefix}-{k + i}", k + i) for i in range(1 + k % 9)]
                k += len(batch)
                self.sent.update((one.observation_id, one) for one in batch)
                try:
                    answers = client.observe(batch)
                except InterfereError:
                    return
                self.acknowledged.update((one.observation_id, one.result) for one in answers)
