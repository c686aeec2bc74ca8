"""The stations of `interfere quickstart`, each one through a public door: a command in a subprocess, or the client."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from interfere.client import PolicyClient
from interfere.errors import InterfereError, UnfitError

NEEDED = ("torch", "psutil", "pyarrow", "mlflow", "lightgbm", "onnxruntime", "rustworkx")
BLOCK_S = "2.0"  # four windows of half a second
DISK_BYTES = 300 * 2**20  # tables, MLflow's database and artifacts, models: 20 MiB a run, with room to spare


def check_ready(work: Path) -> None:
    """Everything that would fail later, now. Raises UnfitError."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise UnfitError(
            "quickstart needs the measuring, training and serving extras; missing",
            value=", ".join(missing),
            remedy="pip install 'interfere[profile,train,serve]'",
        )
    try:
        work.mkdir(parents=True, exist_ok=True)
        probe = work / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UnfitError(
            f"the workspace cannot be written ({error.strerror})", value=work, remedy="choose another with --work DIR"
        ) from None
    free = shutil.disk_usage(work).free
    if free < DISK_BYTES:
        raise UnfitError(
            "too little disk for the workspace",
            value=f"{free / 2**20:.0f} MiB free in {work}",
            remedy=f"free {DISK_BYTES / 2**20:.0f} MiB, or choose another place with --work DIR",
        )


def cannot_measure() -> str:
    """Why jobs cannot share one pinned core here; empty when they can."""
    from interfere.profiling import affinity

    try:
        affinity.pick_core()
    except InterfereError as error:
        return f"{error.what} ({error.value})"
    return ""


def command(*arguments: str) -> dict[str, Any]:
    """Run `interfere ARGUMENTS --json`; its progress goes to our standard error. Raises UnfitError when it fails."""
    try:
        # -P: the current folder is not searched, so nobody's own `training/` runs as ours.
        done = subprocess.run(
            [sys.executable, "-P", "-m", "interfere", *arguments, "--json"], stdout=subprocess.PIPE, check=True
        )
    except subprocess.CalledProcessError as error:
        raise UnfitError(
            f"'interfere {arguments[0]}' failed with exit status {error.returncode}; its message stands above",
            remedy="mend that and run quickstart again: it goes on from what was measured",
        ) from None
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def measure_all(work: Path, table: Path, workloads: str) -> dict[str, Any]:
    """Stations 1 and 2: every workload alone, every pair together, two blocks each."""
    return command(
        "profile",
        "campaign",
        "--workloads",
        workloads,
        "--quick",
        "--block-s",
        BLOCK_S,
        "--work",
        str(work),
        "--out",
        str(table),
    )


def measure_pairs(work: Path, table: Path, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Stations 1 and 2 again, for a few chosen pairs, afresh, three blocks each."""
    names = [f"{victim}+{neighbour}" for victim, neighbour in pairs]
    return command(
        "profile",
        "pairs",
        *names,
        "--quick",
        "--passes",
        "3",
        "--block-s",
        BLOCK_S,
        "--fresh",
        "--solo-s",
        "0.6",
        "--work",
        str(work),
        "--out",
        str(table),
    )


def train(work: Path, data: Sequence[str], held_out: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Stations 3 to 7: encode, fit, score, export, publish, register."""
    tables = [part for name in data for part in ("--data", name)]
    unseen = [part for a, b in held_out for part in ("--held-out", f"{a}+{b}")]
    return command("train", *tables, *unseen, "--work", str(work))


@contextmanager
def served(work: Path, model: Path, store: Path, log: Path) -> Iterator[PolicyClient]:
    """Stations 8 to 10: a server on a free port while the block runs, and a client of it."""
    arguments = ["serve", "--model", str(model), "--port", "0", "--store", str(store), "--work", str(work), "--json"]
    with log.open("w", encoding="utf-8") as errors:
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", "interfere", *arguments], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        line = server.stdout.readline() if server.stdout else ""
        ready = json.loads(line) if line.startswith("{") else {}
        if "address" not in ready:
            raise UnfitError("the server did not start", value=log, remedy="read that log")
        with PolicyClient(ready["address"]) as client:
            client.wait_ready()
            yield client
    finally:
        server.terminate()
        try:
            server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
