"""What a run of quickstart asks of the world, through public interfaces: commands in processes of their own, a client.

Nothing here ends by the clock: on a busy machine every answer is waited for. Processes that were started end with this
one, however it ends.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from interfere.client import PolicyClient
from interfere.commands.output import progress_note
from interfere.errors import InterfereError, UnfitError
from interfere.installation import install_line
from interfere.time_left import read_time_left

if TYPE_CHECKING:
    from interfere.records import PairMeasurement

SHIPPED = "cpu"  # name of the table and of the model that ship with the program
EXTRAS = ("profile", "train", "serve")
LIBRARIES = ("torch", "psutil", "pyarrow", "mlflow", "lightgbm", "onnxruntime", "rustworkx")
FIRST_PASSES, AGAIN_PASSES = 2, 3  # blocks of every pair in the first and in the second measurement
BLOCK_S = "2.0"  # four windows of half a second
PATIENCE_S = 3600.0  # for an answer of the server: beside many busy programs even loading a model takes minutes
TAIL_LINES = 20  # of a failed command's log
MIN_DISK_BYTES = 300 * 2**20  # for tables, MLflow's database and artifacts, models: 20 MiB a run, with room to spare
PROGRAM = """
import sys
if sys.platform == "linux":
    from interfere.profiling.programs.process_tree import die_with_parent
    die_with_parent()
from interfere.cli import console_script
console_script()
"""
INTERFERE = (sys.executable, "-P", "-c", PROGRAM)  # -P: nothing in the current folder hides a library

Progress = Callable[[float, str], None]
"""Takes the seconds left of a stage, and what is being done."""


class Stages(Protocol):
    """Everything that a run needs from the machine; tests put their own in its place."""

    def reason_not_to_measure(self) -> str:
        """Return why jobs cannot share one pinned core here; empty when they can."""

    def measure_all(self, workloads: str, progress: Progress) -> "Sequence[PairMeasurement]":
        """Measure every workload alone and every two together; goes on where it was ended."""

    def measure_pairs(self, pairs: Sequence[tuple[str, str]], progress: Progress) -> "Sequence[PairMeasurement]":
        """Measure a few pairs from nothing; goes on where it was ended."""

    def train(
        self, held_out: Sequence[tuple[str, str]], progress: Progress, *, with_measured: bool
    ) -> Mapping[str, Any]:
        """Train on the shipped table and on what was measured here; no model sees the held-out pairs.

        Raises UnfitError where a table is too noisy to learn from.
        """

    @contextmanager
    def serve(self, model: str) -> Iterator[PolicyClient]:
        """Serve a model while the block runs, and yield a client of it.

        The server keeps what it learned in earlier runs.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandStages:
    """The stages as commands of interfere in one workspace."""

    work: Path
    longer: int = 1  # how many times as long to measure

    @property
    def folder(self) -> Path:
        """Return the folder of the run."""
        return self.work / "runs" / "quickstart"

    @property
    def tables(self) -> tuple[Path, Path]:
        """Return the folders of the first and of the second measurement."""
        return self.work / "tables" / "quickstart", self.work / "tables" / "quickstart-again"

    def reason_not_to_measure(self) -> str:
        from interfere.profiling import affinity

        try:
            affinity.pick_core()
        except InterfereError as error:
            return f"{error.what} ({error.value})"
        return ""

    def measure_all(self, workloads: str, progress: Progress) -> "Sequence[PairMeasurement]":
        return self._measure("campaign", self.tables[0], FIRST_PASSES, progress, "--jobs", workloads)

    def measure_pairs(self, pairs: Sequence[tuple[str, str]], progress: Progress) -> "Sequence[PairMeasurement]":
        names = [f"{victim}+{neighbour}" for victim, neighbour in pairs]
        return self._measure("pairs", self.tables[1], AGAIN_PASSES, progress, *names, "--solo-s", "0.6")

    def _measure(
        self, command: str, table: Path, passes: int, progress: Progress, *arguments: str
    ) -> "Sequence[PairMeasurement]":
        from interfere.data.tables import read_table

        options = {"--passes": str(passes * self.longer), "--block-s": BLOCK_S, "--out": str(table)}
        try:
            self._run("profile", command, *arguments, "--quick", *_arguments(options), progress=progress)
        except UnfitError as error:
            if not (table / "pairs.parquet").exists():
                raise
            progress_note(f"      not everything could be measured: {error.value}")
        return read_table(table).pairs

    def train(
        self, held_out: Sequence[tuple[str, str]], progress: Progress, *, with_measured: bool
    ) -> Mapping[str, Any]:
        data = [SHIPPED, *([str(self.tables[0])] if with_measured else [])]
        tables = [argument for name in data for argument in ("--data", name)]
        unseen = [argument for a, b in held_out for argument in ("--held-out", f"{a}+{b}")]
        return self._run("train", *tables, *unseen, progress=progress)

    @contextmanager
    def serve(self, model: str) -> Iterator[PolicyClient]:
        options = {
            "--model": model,
            "--port": "0",
            "--store": str(self.folder / f"{Path(model).name}.db"),
            "--work": str(self.work),
        }
        log = self.folder / "server.log"
        with log.open("a", encoding="utf-8") as errors:
            server = _start("serve", *_arguments(options), "--json", stdout=subprocess.PIPE, stderr=errors)
        try:
            line = server.stdout.readline() if server.stdout else ""
            ready = json.loads(line) if line.startswith("{") else {}
            if "address" not in ready:
                raise UnfitError("the server did not start", value=log, remedy="read that log")
            with PolicyClient(ready["address"], timeout_s=PATIENCE_S) as client:
                client.wait_ready(PATIENCE_S)
                yield client
        finally:
            server.terminate()
            server.wait()

    def _run(self, *arguments: str, progress: Progress) -> dict[str, Any]:
        """Run `interfere ARGUMENTS --json` and return its document.

        Its lines of progress go to `progress`, its warnings of other programs to our standard error, all else to a log.
        Raises UnfitError when the command fails.
        """
        name, last = arguments[0], deque[str](maxlen=TAIL_LINES)
        log = self.folder / f"{name}.log"
        with tempfile.TemporaryFile("w+", encoding="utf-8") as answer, log.open("a", encoding="utf-8") as lines:
            command = _start(*arguments, "--work", str(self.work), "--json", stdout=answer, stderr=subprocess.PIPE)
            for line in command.stderr or ():
                lines.write(line)
                lines.flush()
                if found := read_time_left(line):
                    progress(*found)
                    continue
                last.append(line.strip())
                if name == "profile" and line.startswith("warning: "):
                    progress_note(f"      {line.rstrip()}")
            if command.wait():
                raise UnfitError(
                    f"'interfere {name}' failed with exit status {command.returncode}",
                    value=next((each[7:] for each in last if each.startswith("error: ")), "no message"),
                    remedy=f"mend that and run quickstart again: it goes on where it ended. The log is {log}",
                )
            answer.seek(0)
            document: dict[str, Any] = json.load(answer)
            return document


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


def _arguments(options: Mapping[str, str]) -> list[str]:
    return [argument for option in options.items() for argument in option]


def _start(*arguments: str, stdout: IO[str] | int, stderr: IO[str] | int) -> "subprocess.Popen[str]":
    """Start `interfere ARGUMENTS`; on Linux the kernel ends it when this process ends."""
    return subprocess.Popen([*INTERFERE, *arguments], stdout=stdout, stderr=stderr, text=True)
