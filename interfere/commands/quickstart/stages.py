"""What a run of quickstart asks of the world, through public interfaces: commands in processes of their own, a client.

Nothing here ends by the clock: on a busy machine every answer is waited for. Processes that were started end with this
one, however it ends.
"""

import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from interfere.client import PolicyClient
from interfere.commands.output import progress_note
from interfere.commands.quickstart.pairings import Pairing, Slowdown, Slowdowns, predicted_slowdown
from interfere.errors import InterfereError, UnfitError
from interfere.file_writing import require_writable
from interfere.installation import install_line
from interfere.records import Device, Job, PairMeasurement, Snapshot
from interfere.records import Progress as ProgressReport
from interfere.sharing_modes import DEFAULT_MODE
from interfere.time_left import read_time_left
from interfere.wire.documents import decision_document

WORKLOADS = "eight"  # name of the set that is measured
SHIPPED = "cpu"  # name of the table and of the model that ship with the program
DEVICE_TYPE, MODE = "cpu-core", DEFAULT_MODE
LIBRARIES = ("torch", "psutil", "pyarrow", "mlflow", "lightgbm", "onnxruntime", "highspy")
FIRST_PASSES, AGAIN_PASSES = 2, 3  # blocks of every pair in the first and in the second measurement
BLOCK_S = "2.0"  # four windows of half a second
PATIENCE_S = 3600.0  # for an answer of the server: beside many busy programs even loading a model takes minutes
TAIL_LINES = 20  # of a failed command's log
MIN_DISK_BYTES = 300 * 2**20  # for tables, MLflow's database and artifacts, models: 20 MiB a run, with room to spare
PROGRAM = """
import sys
if sys.platform == "linux":
    from interfere.profiling.programs.supervision import die_with_parent
    die_with_parent()
from interfere.cli import console_script
console_script()
"""
INTERFERE = (sys.executable, "-P", "-c", PROGRAM)  # -P: nothing in the current folder hides a library

Progress = Callable[[float, str], None]
"""Takes the seconds left of a stage, and what is being done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The predictions and the decision of a served model that the later stages need."""

    model_version: str
    pairing: Pairing
    facts: Mapping[str, Any]  # of the plan
    explained: Mapping[str, Any]  # one job's action, and its alternatives
    predicted: Slowdowns

    def document(self) -> dict[str, Any]:
        """Return the decision as JSON."""
        return asdict(self) | {"predicted": [[*pair, *slowdown] for pair, slowdown in self.predicted.items()]}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Decision":
        """Return the decision that `document` wrote."""
        predicted = {(a, b): Slowdown(value, error) for a, b, value, error in document["predicted"]}
        pairing = tuple((a, b) for a, b in document["pairing"])
        return cls(**{**document, "pairing": pairing, "predicted": predicted})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The stages of a run as commands of interfere in a workspace; a test may replace them."""

    work: Path
    longer: int = 1  # how many times as long to measure

    @property
    def folder(self) -> Path:
        """The folder of the quickstart run in the workspace."""
        return self.work / "runs" / "quickstart"

    @property
    def tables(self) -> tuple[Path, Path]:
        """The folders of the first and of the second measurement."""
        return self.work / "tables" / "quickstart", self.work / "tables" / "quickstart-again"

    def reason_not_to_measure(self) -> str:
        """Return the reason why jobs cannot share a pinned core here; empty when they can."""
        from interfere.profiling import affinity

        try:
            affinity.pick_core()
        except InterfereError as error:
            return f"{error.what} ({error.value})"
        return ""

    def measure_all(self, progress: Progress) -> Sequence[PairMeasurement]:
        """Measure every workload alone and every pair of workloads; after an interruption, continue."""
        return self._measure("campaign", self.tables[0], FIRST_PASSES, progress, "--jobs", WORKLOADS)

    def measure_pairs(self, pairs: Sequence[tuple[str, str]], progress: Progress) -> Sequence[PairMeasurement]:
        """Measure a few pairs without any earlier measurement; after an interruption, continue."""
        names = [f"{victim}+{neighbour}" for victim, neighbour in pairs]
        return self._measure("pairs", self.tables[1], AGAIN_PASSES, progress, *names, "--solo-s", "0.6")

    def _measure(
        self, command: str, table: Path, passes: int, progress: Progress, *arguments: str
    ) -> Sequence[PairMeasurement]:
        from interfere.data.tables import read_table

        options = ["--quick", "--passes", str(passes * self.longer), "--block-s", BLOCK_S, "--out", str(table)]
        try:
            self._run("profile", command, *arguments, *options, progress=progress)
        except UnfitError as error:
            if not (table / "pairs.parquet").exists():
                raise
            progress_note(f"      not everything could be measured: {error.value}")
        return read_table(table).pairs

    def train(
        self, held_out: Sequence[tuple[str, str]], progress: Progress, *, with_measured: bool
    ) -> Mapping[str, Any]:
        """Train on the shipped table and on what was measured here; no model sees the held-out pairs.

        Raises UnfitError where a table is too noisy to learn from.
        """
        tables = ["--data", SHIPPED, *(["--data", str(self.tables[0])] if with_measured else [])]
        unseen = [argument for a, b in held_out for argument in ("--held-out", f"{a}+{b}")]
        return self._run("train", *tables, *unseen, progress=progress)

    @contextmanager
    def serve(self, model: str) -> Iterator[PolicyClient]:
        """Serve a model while the block runs, and yield a client of it.

        The server keeps what it learned in earlier runs.
        """
        store, log = self.folder / f"{Path(model).name}.db", self.folder / "server.log"
        options = ["--model", model, "--port", "0", "--store", str(store), "--work", str(self.work)]
        with log.open("a", encoding="utf-8") as errors:
            server = _start("serve", *options, "--json", stdout=subprocess.PIPE, stderr=errors)
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

    def decide(self, model: str, names: Sequence[str]) -> Decision:
        """Return a served model's slowdowns, its placement of all jobs on half as many cores, and why the first job got
        its core."""
        devices = tuple(Device(id=f"core-{k + 1}", type=DEVICE_TYPE, mode=MODE) for k in range(len(names) // 2))
        pending = tuple(Job(id=name, workload=name) for name in names)
        facts = ("decision_id", "model_version", "status", "cost", "greedy_cost", "lower_bound")
        with self.serve(model) as client:
            predicted = _predict(client, names)
            plan = client.match(Snapshot(pending=pending, devices=devices))
            return Decision(
                model_version=plan.model_version,
                pairing=tuple((pair.job_id, pair.partner_id) for pair in plan.pairs),
                facts={name: getattr(plan, name) for name in facts},
                explained=decision_document(client.explain(plan.decision_id, names[0])),
                predicted=predicted,
            )

    def learn(
        self, model: str, names: Sequence[str], predicted: Slowdowns, rows: Sequence[PairMeasurement]
    ) -> dict[str, Any]:
        """Report the measured slowdowns of pairs to a served model, as a scheduler would, and return the errors before
        and after."""
        if not rows:
            return {"observations": 0, "applied": 0, "error_before": None, "error_after": None}
        reports = [
            ProgressReport(
                observation_id=f"quickstart-{row.victim}-{row.neighbour}",
                job_id=row.victim,
                workload=row.victim,
                company=(row.neighbour,),
                device_type=DEVICE_TYPE,
                mode=MODE,
                slowdown=row.slowdown,
                start_s=float(k),
                end_s=k + 1.0,
            )
            for k, row in enumerate(rows)
        ]
        with self.serve(model) as client:
            answers = client.observe(reports)
            learned = _predict(client, names)
        return {
            "observations": len(answers),
            "applied": sum(answer.result.value in ("applied", "duplicate") for answer in answers),
            "error_before": _prediction_error(predicted, rows),
            "error_after": _prediction_error(learned, rows),
        }

    def _run(self, *arguments: str, progress: Progress) -> dict[str, Any]:
        """Run `interfere ARGUMENTS --json` and return its document. Raises UnfitError when the command fails.

        The command's lines of progress go to `progress`, warnings of other programs to standard error, all else to a
        log.
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
                    value=_failure(last),
                    remedy=f"mend that and run quickstart again: it goes on where it ended. The log is {log}",
                )
            answer.seek(0)
            document: dict[str, Any] = json.load(answer)
            return document


def check_ready(work: Path) -> None:
    """Raise UnfitError for what would stop the run later: a missing library, an unwritable workspace, a full disk."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        raise UnfitError(
            "quickstart needs the measuring, training and serving extras; missing",
            value=", ".join(missing),
            remedy=install_line("profile", "train", "serve"),
        )
    require_writable(work)
    free_bytes = shutil.disk_usage(work).free
    if free_bytes < MIN_DISK_BYTES:
        raise UnfitError(
            "too little disk for the workspace",
            value=f"{free_bytes / 2**20:.0f} MiB free in {work}",
            remedy=f"free {MIN_DISK_BYTES / 2**20:.0f} MiB, or choose another place with --work DIR",
        )


def _predict(client: PolicyClient, names: Sequence[str]) -> Slowdowns:
    """Return the server's slowdown of every job beside every other job."""
    answer = client.predict(names, device_type=DEVICE_TYPE, mode=MODE)
    made = answer.prediction
    numbers = zip(answer.victim.tolist(), answer.neighbour.tolist(), made.median, made.lower, made.upper, strict=True)
    return {
        (names[i], names[j]): predicted_slowdown(float(median), float(lower), float(upper))
        for i, j, median, lower, upper in numbers
    }


def _prediction_error(predicted: Slowdowns, rows: Sequence[PairMeasurement]) -> float:
    """Return the mean relative error of predicted slowdowns: |predicted - measured| / measured."""
    errors = [abs(predicted[row.victim, row.neighbour].value - row.slowdown) / row.slowdown for row in rows]
    return math.fsum(errors) / len(errors)


def _failure(lines: Sequence[str]) -> str:
    """Return the reason why a command failed: its error message, else its last warning, else its last line."""
    for kind in ("error: ", "warning: "):
        messages = [line.removeprefix(kind) for line in lines if line.startswith(kind)]
        if messages:
            return messages[-1]
    return lines[-1] if lines else "no message"


def _start(*arguments: str, stdout: IO[str] | int, stderr: IO[str] | int) -> "subprocess.Popen[str]":
    """Start `interfere ARGUMENTS`; on Linux the kernel ends it when this process ends."""
    return subprocess.Popen([*INTERFERE, *arguments], stdout=stdout, stderr=stderr, text=True)
