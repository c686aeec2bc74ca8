"""The stages of `interfere quickstart`, each through a public interface: a command in a subprocess, or the client.

The numbers are those of the stages from a measurement to a decision: 1 profile alone, 2 profile together, 3 record,
4 encode, 5 fit and score, 6 export, 7 promote, 8 predict, 9 decide, 10 observe.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from interfere.client import PolicyClient
from interfere.errors import InterfereError, UnfitError
from interfere.installation import install_line

EXTRAS = ("profile", "train", "serve")
LIBRARIES = ("torch", "psutil", "pyarrow", "mlflow", "lightgbm", "onnxruntime", "rustworkx")
BLOCK_S = "2.0"  # four windows of half a second
MIN_DISK_BYTES = 300 * 2**20  # for tables, MLflow's database and artifacts, models: 20 MiB a run, with room to spare
INTERFERE = (sys.executable, "-P", "-m", "interfere")  # -P: nothing in the current folder hides a library


def check_ready(work: Path) -> None:
    """Raise UnfitError for what would fail later: a missing library, an unwritable workspace, a full disk."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        raise UnfitError(
            "quickstart needs the measuring, training and serving extras; missing",
            value=", ".join(missing),
            remedy=install_line(*EXTRAS),
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
    free_bytes = shutil.disk_usage(work).free
    if free_bytes < MIN_DISK_BYTES:
        raise UnfitError(
            "too little disk for the workspace",
            value=f"{free_bytes / 2**20:.0f} MiB free in {work}",
            remedy=f"free {MIN_DISK_BYTES / 2**20:.0f} MiB, or choose another place with --work DIR",
        )


def reason_not_to_measure() -> str:
    """Return why jobs cannot share one pinned core here; empty when they can."""
    from interfere.profiling import affinity

    try:
        affinity.pick_core()
    except InterfereError as error:
        return f"{error.what} ({error.value})"
    return ""


def run_command(*arguments: str) -> dict[str, Any]:
    """Run `interfere ARGUMENTS --json` and return its document; its progress goes to our standard error.

    Raises UnfitError when the command fails.
    """
    try:
        finished = subprocess.run([*INTERFERE, *arguments, "--json"], stdout=subprocess.PIPE, check=True)
    except subprocess.CalledProcessError as error:
        raise UnfitError(
            f"'interfere {arguments[0]}' failed with exit status {error.returncode}; its message stands above",
            remedy="mend that and run quickstart again: it goes on from what was measured",
        ) from None
    document: dict[str, Any] = json.loads(finished.stdout)
    return document


def measure_all(work: Path, table: Path, workloads: str) -> dict[str, Any]:
    """Run stages 1 to 3: every workload alone and every pair together, two blocks each, into `table`."""
    options = {"--workloads": workloads, "--block-s": BLOCK_S, "--work": str(work), "--out": str(table)}
    return run_command("profile", "campaign", "--quick", *_arguments(options))


def measure_pairs(work: Path, table: Path, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Run stages 1 to 3 again for a few chosen pairs, from nothing, three blocks each, into `table`."""
    names = [f"{victim}+{neighbour}" for victim, neighbour in pairs]
    options = {"--passes": "3", "--block-s": BLOCK_S, "--solo-s": "0.6", "--work": str(work), "--out": str(table)}
    return run_command("profile", "pairs", *names, "--quick", "--fresh", *_arguments(options))


def train(work: Path, data: Sequence[str], held_out: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Run stages 4 to 7: encode, fit, score, export, publish, register; no model sees the held-out pairs."""
    tables = [argument for name in data for argument in ("--data", name)]
    unseen = [argument for a, b in held_out for argument in ("--held-out", f"{a}+{b}")]
    return run_command("train", *tables, *unseen, "--work", str(work))


def _arguments(options: Mapping[str, str]) -> list[str]:
    return [argument for option in options.items() for argument in option]


@contextmanager
def served_client(work: Path, model: Path, store: Path, log: Path) -> Iterator[PolicyClient]:
    """Run a server of `model` on a free port while the block runs, for stages 8 to 10, and yield a client of it."""
    options = {"--model": str(model), "--port": "0", "--store": str(store), "--work": str(work)}
    arguments = [*INTERFERE, "serve", *_arguments(options), "--json"]
    with log.open("w", encoding="utf-8") as errors:
        server = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=errors, text=True)
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
