"""Try everything here in seven minutes, without a GPU.

Law: a run that was killed and is started again repeats no stage that had ended, and a finished run starts anew.
"""

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit, err, keeps_when_interrupted, out, progress_note
from interfere.commands.quickstart.document import Findings
from interfere.commands.quickstart.pairings import (
    Knowledge,
    MeasuringTime,
    Pairing,
    all_pairs,
    choose_held_out,
    choose_random_pairing,
    compare,
    directions,
    distinct_pairs,
    greedy_pairing,
    learn_between_runs,
    measured_slowdowns,
)
from interfere.commands.quickstart.stages import SHIPPED, WORKLOADS, Decision, Progress, Stages
from interfere.errors import UnfitError
from interfere.file_writing import write_text
from interfere.records import PairMeasurement, PairStatus
from interfere.strict_json import json_value
from interfere.time_left import clock_text

# Seconds on a virtual machine with two cores and nothing else running.
SHIPPED_S, TRAIN_S, SERVE_S, START_S = 10.0, 75.0, 8.0, 20.0
PAIR_S, PAIR_AGAIN_S = 4.6, 6.8  # of one pair
NOTE_EVERY_S = 10.0  # between lines of progress where standard error is no terminal
KEPT_SHARE = 0.2  # of the expected time: a stage that takes less was kept from before, and says nothing of the pace
SETTINGS, FINISHED = "settings.json", "report.json"
WriteFindings = Callable[[Findings], object]

app = typer.Typer(add_completion=False)


@app.command()
@keeps_when_interrupted(
    "measurements and finished stages are kept in the workspace: the same command goes on from them"
)
def quickstart(
    work: Work = DEFAULT_WORK,
    longer: Annotated[
        int, typer.Option(min=1, help="Measure so many times as long; intervals shrink with its square root.")
    ] = 1,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the draws: which pairs are held out, which random pairing is run.")
    ] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Profile, train, serve, match, and run the chosen and a random pairing for real. About seven minutes.

    Ended before it is done and started again, it goes on. At its end stands a page: WORK/runs/quickstart/page.html.
    """
    from interfere.commands.quickstart.document import quickstart_document
    from interfere.commands.quickstart.stages import check_ready
    from interfere.profiling.workloads import expand_names
    from interfere.reports.html_page import write_html_page
    from interfere.reports.terminal import TerminalDocument

    check_ready(work)
    settings = RunSettings(workloads=expand_names(WORKLOADS), seed=seed, longer=longer)
    stages = Stages(work=work, longer=longer)
    folder = RunFolder(stages.folder, stages.tables, settings)
    page = stages.folder / "page.html"

    def write_page(findings: Findings) -> Path:
        return write_html_page(page, quickstart_document(findings))

    findings = run_quickstart(stages, folder, settings, write_page)
    report = folder.finish(findings.document())
    console = err if as_json else out  # with --json, standard output is for the document alone
    console.print()
    console.print(TerminalDocument(quickstart_document(findings)))
    if as_json:
        emit(findings.document(), "", as_json=True)
        return
    lines = f"\npage: {page.resolve().as_uri()}\nreport: {report}\ntables, models and runs: {work}/"
    out.print(lines, _next_commands(work, findings.training), sep="\n", soft_wrap=True)


def _next_commands(workspace: Path, training: Mapping[str, Any]) -> str:
    work_option = "" if str(workspace) == "interfere-work" else f" --work {workspace}"
    model_option = "" if training["is_champion"] else f" --model {training['folder']}"  # a champion is the default
    return (
        "\nnext, to copy:\n"
        f"  interfere serve{model_option}{work_option}\n"
        "  interfere match --example\n"
        f"  interfere ui{work_option}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The settings of a run of quickstart. A run with equal settings continues where an earlier run ended."""

    workloads: tuple[str, ...]
    seed: int = 0  # which pairs are held out, which random pairing is run
    longer: int = 1  # how many times as long to measure


class RunPlan:
    """The stages of a run of quickstart, with the remaining time of each stage and of the run."""

    def __init__(self, expected_s: Mapping[str, float], now_s: Callable[[], float] = time.monotonic) -> None:
        """Start counting. `expected_s` gives the stages in order, with their seconds on an otherwise idle machine."""
        self._expected_s, self._now_s = dict(expected_s), now_s
        self._spent_s = self._planned_s = 0.0  # in the stages that have ended
        self._ended: list[str] = []

    @contextmanager
    def stage(self, text: str) -> Iterator[Progress]:
        """Print that a stage begins, and yield the function that takes the progress of the stage."""
        name = list(self._expected_s)[len(self._ended)]
        begin_s = self._now_s()
        next_note_s = begin_s + NOTE_EVERY_S
        number = f"[{len(self._ended) + 1}/{len(self._expected_s)}]"
        expected_s = self._expected_s[name] * self._pace
        left = f"about {clock_text(expected_s)} of {clock_text(expected_s + self._later_s)} left"
        progress_note(f"\n{number} {text} · {left}")
        with err.status("") as status:

            def progress(seconds_left: float, doing: str) -> None:
                nonlocal next_note_s
                in_all = clock_text(seconds_left + self._later_s)
                line = f"{number} {clock_text(seconds_left)} left of this stage, {in_all} in all · {doing}"
                if err.is_terminal:
                    status.update(line)
                elif self._now_s() >= next_note_s:
                    next_note_s = self._now_s() + NOTE_EVERY_S
                    progress_note(f"      {line}")

            yield progress
        self._ended.append(name)
        spent_s = self._now_s() - begin_s
        if spent_s > KEPT_SHARE * self._expected_s[name]:
            self._spent_s += spent_s
            self._planned_s += self._expected_s[name]

    @property
    def text(self) -> str:
        """The expected duration of the run and the number of its stages, in words."""
        return f"About {math.ceil(sum(self._expected_s.values()) / 60)} minutes in {len(self._expected_s)} stages"

    def usual_s(self, *names: str) -> float:
        """Return the expected seconds of named stages at the pace of this run; a stage that the run lacks takes 0 s."""
        return sum(self._expected_s.get(name, 0.0) for name in names) * self._pace

    @property
    def _pace(self) -> float:
        """The ratio of actual to expected duration of the stages so far."""
        return max(1.0, self._spent_s / self._planned_s) if self._planned_s else 1.0

    @property
    def _later_s(self) -> float:
        """The expected seconds of the stages after the present one."""
        later = list(self._expected_s)[len(self._ended) + 1 :]
        return sum(self._expected_s[each] for each in later) * self._pace


class RunFolder:
    """The folder of a run of quickstart, with the result of each stage in a JSON file of its own."""

    def __init__(self, folder: Path, tables: tuple[Path, ...], settings: RunSettings) -> None:
        """Open an unfinished run with these settings in this folder, or else begin a new run.

        `tables` are folders of measurements that belong to the run.
        """
        self.folder, self._settings = folder, json_value(asdict(settings))
        if self._read(SETTINGS) != self._settings or (folder / FINISHED).exists():
            for earlier in (folder, *tables):
                shutil.rmtree(earlier, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        self._write(SETTINGS, self._settings)

    def once(self, name: str, compute: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Return the result of a stage: from its file, or computed now and written to that file."""
        kept = self._read(f"{name}.json")
        if kept is None:
            self._write(f"{name}.json", dict(compute()))
            kept = self._read(f"{name}.json")
        assert kept is not None
        return kept

    def finish(self, report: Mapping[str, Any]) -> Path:
        """Write the report, after which the next run begins anew, and return the path of the report."""
        return self._write(FINISHED, report)

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.folder / name
        document: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        return document

    def _write(self, name: str, document: Mapping[str, Any]) -> Path:
        write_text(self.folder / name, json.dumps(json_value(document), indent=2) + "\n")
        return self.folder / name


def run_quickstart(stages: Stages, folder: RunFolder, settings: RunSettings, write_page: WriteFindings) -> Findings:
    """Run all stages that have not ended yet. Raises UnfitError where a stage cannot run or fails."""
    names, begin_s, reason = settings.workloads, time.monotonic(), stages.reason_not_to_measure()
    held_out, random_pairing = choose_held_out(names, settings.seed), choose_random_pairing(names, settings.seed)
    plan = RunPlan(_expected_seconds(len(names), 0 if reason else settings.longer))
    if reason:
        progress_note(f"This machine cannot measure: {reason}. Every figure below is from the shipped table.")
    else:
        progress_note(
            f"One CPU core, shared in time slices, stands in for a GPU. {plan.text}; interrupted, it goes on."
        )

    def decide(name: str, model: str) -> Decision:
        return Decision.from_document(folder.once(name, lambda: stages.decide(model, names).document()))

    # 1. Serve, match and explain with the model and the table that ship with the program.
    with plan.stage("from shipped data: a model is served, places the jobs and explains one of them"):
        shipped = _shipped_rows()
        findings = _findings(names, decide("shipped", SHIPPED), random_pairing, shipped, (), MeasuringTime(), reason)
        progress_note(f"      page: {write_page(findings)}; a page of this machine replaces it when the run ends")

    # 2. Measure all jobs alone and in pairs.
    first: Sequence[PairMeasurement] = ()
    if not reason:
        n_pairs = len(names) * (len(names) + 1) // 2
        with plan.stage(f"measuring {len(names)} jobs alone and in all {n_pairs} pairs") as progress:
            first = stages.measure_all(progress)

    # 3. Train on all pairs but the held-out ones.
    with plan.stage(f"training six predictors; {len(held_out)} of the pairs are hidden from each") as progress:
        measured = any(row.status is PairStatus.OK for row in first)
        training = folder.once("train", lambda: _train(stages, held_out, progress, measured=measured))

    # 4. Serve the best and match.
    model = str(training["folder"])
    with plan.stage("serving the best, asking it which jobs share a core"):
        decision = decide("decision", model)

    # 5. Run the chosen, the greedy and a random pairing for real; 6. report to the server what the chosen pairs did.
    again: Sequence[PairMeasurement] = ()
    learning: Mapping[str, Any] = {}
    if not reason:
        pairs = distinct_pairs(decision.pairing, _greedy(names, decision), random_pairing)
        with plan.stage(f"running the chosen, a greedy and a random pairing: {len(pairs)} pairs, afresh") as progress:
            again = stages.measure_pairs(pairs, progress)
        with plan.stage("reporting what was measured; the server learns"):
            chosen = set(directions(decision.pairing))
            rows = [row for row in again if (row.victim, row.neighbour) in chosen and row.status is PairStatus.OK]
            learning = folder.once("learning", lambda: stages.learn(model, names, decision.predicted, rows))

    # 7. Compare.
    time_spent = MeasuringTime(seconds=plan.usual_s("measure", "again"), longer=settings.longer)
    findings = replace(
        _findings(names, decision, random_pairing, first or (shipped if reason else ()), again, time_spent, reason),
        held_out=tuple(held_out),
        training=training,
        learning=learning,
        measured=(*first, *again),
        is_finished=True,
        seconds=time.monotonic() - begin_s,
    )
    write_page(findings)
    return findings


def _findings(
    names: tuple[str, ...],
    decision: Decision,
    random_pairing: Pairing,
    first: Sequence[PairMeasurement],
    again: Sequence[PairMeasurement],
    time_spent: MeasuringTime,
    reason: str,
) -> Findings:
    """Return the comparisons of a decision with other pairings, by both measurements; predictions fill gaps."""
    wanted = set(directions(all_pairs(names)))
    measured, repeated = (
        {pair: slowdown for pair, slowdown in measured_slowdowns(rows).items() if pair in wanted}
        for rows in (first, again)
    )
    knowledge = Knowledge(
        predicted=decision.predicted,
        first=measured,
        again=repeated,
        between_runs=learn_between_runs(measured, repeated),
    )
    rows, comparisons = compare(
        names, decision.pairing, _greedy(names, decision), random_pairing, knowledge, time_spent
    )
    return Findings(
        reason_not_measured=reason,
        workloads=names,
        decision=decision,
        rows=rows,
        comparisons=comparisons,
        knowledge=knowledge,
    )


def _greedy(names: Sequence[str], decision: Decision) -> Pairing:
    """Return the pairing that a greedy scheduler makes of the same predictions."""
    return greedy_pairing(names, {pair: slowdown.value for pair, slowdown in decision.predicted.items()})


def _expected_seconds(n_jobs: int, longer: int) -> dict[str, float]:
    """Return the stages with their usual seconds; without measuring where `longer` is 0."""
    n_pairs, most_again = n_jobs * (n_jobs + 1) // 2, 3 * n_jobs // 2
    measure_s, again_s = START_S + longer * PAIR_S * n_pairs, START_S + longer * PAIR_AGAIN_S * most_again
    expected_s = {"shipped": SHIPPED_S, "measure": measure_s, "train": TRAIN_S}
    expected_s |= {"decide": SERVE_S, "again": again_s, "learn": SERVE_S}
    return {name: s for name, s in expected_s.items() if longer or name not in ("measure", "again", "learn")}


def _train(
    stages: Stages, held_out: Sequence[tuple[str, str]], progress: Progress, *, measured: bool
) -> dict[str, Any]:
    """Return the document of a training on the measurements made here, or without them where they are too noisy."""
    if measured:
        try:
            return {**stages.train(held_out, progress, with_measured=True), "with_measured": True}
        except UnfitError as error:
            progress_note(
                f"      what was measured here teaches no predictor, so the shipped table does: {error.value}"
            )
    return {**stages.train(held_out, progress, with_measured=False), "with_measured": False}


def _shipped_rows() -> Sequence[PairMeasurement]:
    from interfere.data.loading import shipped_table
    from interfere.data.tables import read_table

    return read_table(shipped_table(SHIPPED)).pairs
