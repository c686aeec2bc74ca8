"""One run of quickstart: measure, train, serve, match, run the chosen pairing for real, and learn from it."""

import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interfere.commands.output import progress_note
from interfere.commands.quickstart import stages
from interfere.commands.quickstart.comparison import (
    ComparisonRow,
    DifferenceFromRandom,
    compare_pairings,
    comparison_document,
    comparison_row,
    difference_from_random,
    prediction_error,
    rows_of,
)
from interfere.commands.quickstart.pairings import Pairing, Slowdowns, all_pairings, measured_slowdowns
from interfere.sharing_modes import DEFAULT_MODE

if TYPE_CHECKING:
    from interfere.client import PolicyClient
    from interfere.data.tables import Table
    from interfere.records import PairMeasurement

DEVICE_TYPE, MODE = "cpu-core", DEFAULT_MODE
SHIPPED_TABLE = "cpu"
HELD_OUT_SHARE = 1 / 3  # of the pairs of different jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickstartResult:
    """Everything that one run found."""

    reason_not_measured: str  # empty where the jobs were measured on this machine
    workloads: tuple[str, ...]
    held_out: tuple[tuple[str, str], ...]  # pairs that no model saw
    table: Path  # folder of the measurements that everything is compared with
    training: Mapping[str, Any]  # the document of `interfere train`
    model_version: str
    decision: Mapping[str, Any]
    comparison: tuple[ComparisonRow, ...]  # the chosen pairing first
    difference: DifferenceFromRandom
    remeasured: bool  # whether the chosen pairing was run again for the difference
    learning: Mapping[str, Any]  # what the server learnt from it; empty where nothing was run again
    seconds: float

    @property
    def chosen(self) -> Pairing:
        """Return the pairing that the server decided on."""
        return self.comparison[0].pairing

    def document(self) -> dict[str, Any]:
        """Return the report: what --json prints and report.json holds."""
        return {
            "measured_here": not self.reason_not_measured,
            "why_not_measured": self.reason_not_measured,
            "device": "one CPU core, time-sliced",
            "workloads": list(self.workloads),
            "held_out_pairs": [list(pair) for pair in self.held_out],
            "decision": dict(self.decision),
            "pairings": comparison_document(self.comparison),
            "difference": asdict(self.difference)
            | {"verdict": self.difference.verdict, "chosen_run_again": self.remeasured},
            "online": dict(self.learning),
            "training": dict(self.training),
            "table": str(self.table),
            "seconds": self.seconds,
        }


def run_quickstart(work: Path, workload_set: str, seed: int) -> QuickstartResult:
    """Run all stages in the workspace. Raises UnfitError where one of them cannot run or fails."""
    from interfere.profiling.workloads import expand_names

    stages.check_ready(work)
    reason, begin_s = stages.reason_not_to_measure(), time.monotonic()
    if reason:
        progress_note(f"This machine cannot measure: {reason}. Every figure below is from the shipped table.")
    else:
        progress_note(
            "One CPU core, shared in time slices, stands in for a GPU: every figure below is of this very run."
        )
    run_folder, names = prepare_run_folder(work), expand_names(workload_set)

    # 1. Measure all jobs alone and in pairs.
    table_folder, table = _measured_table(work, workload_set, names, can_measure=not reason)

    # 2. Train on all pairs but the held-out ones.
    held_out = choose_held_out(names, seed)
    progress_note(f"\n[2/5] training; {len(held_out)} of the pairs are hidden from every model")
    own_tables = [] if reason else [str(table_folder)]
    training = stages.train(work, [SHIPPED_TABLE, *own_tables], held_out)

    # 3. Serve the model, predict and match; 4. run the pairing for real; 5. report it.
    progress_note("\n[3/5] serving the published model, asking for the matching")
    model_folder, log = Path(training["folder"]), run_folder / "server.log"
    with stages.served_client(work, model_folder, run_folder / "store.db", log) as client:
        predicted = predict_slowdowns(client, names)
        chosen, decision = match_jobs(client, names)
        random_pairing = choose_random_pairing(names, seed)
        remeasured = () if reason else _run_again(work, chosen, random_pairing)
        learning = _report_and_learn(client, names, chosen, predicted, remeasured)
        model_version = client.model().version
    _note_unstable(table)

    # 6. Compare.
    comparison = compare_pairings(names, chosen, predicted, measured_slowdowns(table.pairs))
    if remeasured:
        again = measured_slowdowns(remeasured)
        comparison.append(comparison_row("chosen, run again", chosen, predicted, again))
        comparison.append(comparison_row("a random one, run", random_pairing, predicted, again))
    chosen_rows = rows_of(chosen, remeasured or table.pairs)
    all_rows = [row for row in table.pairs if {row.victim, row.neighbour} <= set(names)]
    return QuickstartResult(
        reason_not_measured=reason,
        workloads=names,
        held_out=tuple(held_out),
        table=table_folder,
        training=training,
        model_version=model_version,
        decision=decision,
        comparison=tuple(comparison),
        difference=difference_from_random(chosen_rows, all_rows),
        remeasured=bool(remeasured),
        learning=learning,
        seconds=time.monotonic() - begin_s,
    )


def prepare_run_folder(work: Path) -> Path:
    """Return the empty folder of this run. After a finished run the tables go too; after a killed one they stay."""
    folder = work / "runs" / "quickstart"
    if (folder / "report.json").exists():
        shutil.rmtree(work / "tables" / "quickstart", ignore_errors=True)
    for earlier in (work / "tables" / "quickstart-again", folder):
        shutil.rmtree(earlier, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def choose_held_out(names: Sequence[str], seed: int) -> list[tuple[str, str]]:
    """Draw a third of the unordered pairs of different jobs."""
    pairs = [(a, b) for k, a in enumerate(names) for b in names[k + 1 :]]
    return sorted(random.Random(seed).sample(pairs, round(len(pairs) * HELD_OUT_SHARE)))  # noqa: S311 - no secret


def choose_random_pairing(names: Sequence[str], seed: int) -> Pairing:
    """Draw one of all pairings."""
    return random.Random(seed + 1).choice(list(all_pairings(names)))  # noqa: S311 - no secret


def predict_slowdowns(client: "PolicyClient", names: Sequence[str]) -> dict[tuple[str, str], float]:
    """Ask the server for the slowdown of every job beside every other."""
    answer = client.predict(names, device_type=DEVICE_TYPE, mode=MODE)
    places = zip(answer.victim.tolist(), answer.neighbour.tolist(), strict=True)
    medians = answer.prediction.median.tolist()
    return {(names[i], names[j]): median for (i, j), median in zip(places, medians, strict=True)}


def match_jobs(client: "PolicyClient", names: Sequence[str]) -> tuple[Pairing, dict[str, Any]]:
    """Ask the server to place all jobs on half as many cores; return its pairing and the facts of its decision."""
    from interfere.records import Device, Job, Snapshot

    devices = tuple(Device(id=f"core-{k + 1}", type=DEVICE_TYPE, mode=MODE) for k in range(len(names) // 2))
    plan = client.match(Snapshot(pending=tuple(Job(id=name, workload=name) for name in names), devices=devices))
    decision = {
        "decision_id": plan.decision_id,
        "model_version": plan.model_version,
        "status": str(plan.status),
        "cost": plan.cost,
        "greedy_cost": plan.greedy_cost,
        "lower_bound": plan.lower_bound,
    }
    return tuple((pair.job_id, pair.partner_id) for pair in plan.pairs), decision


def _measured_table(work: Path, workload_set: str, names: Sequence[str], *, can_measure: bool) -> "tuple[Path, Table]":
    from interfere.data.shipped_tables import shipped_table
    from interfere.data.tables import read_table

    folder = shipped_table(SHIPPED_TABLE)
    if can_measure:
        n_pairs = len(names) * (len(names) + 1) // 2
        progress_note(f"\n[1/5] measuring {len(names)} jobs alone and in all {n_pairs} pairs")
        folder = work / "tables" / "quickstart"
        stages.measure_all(work, folder, workload_set)
    return folder, read_table(folder)


def _run_again(work: Path, chosen: Pairing, random_pairing: Pairing) -> "tuple[PairMeasurement, ...]":
    """Measure the pairs of both pairings from nothing, interleaved; nothing of the first measurement is used."""
    from interfere.data.tables import read_table

    pairs = {frozenset(pair): pair for pair in (*chosen, *random_pairing)}
    progress_note(f"\n[4/5] running the chosen pairing and a random one for real: {len(pairs)} pairs, measured afresh")
    folder = work / "tables" / "quickstart-again"
    stages.measure_pairs(work, folder, list(pairs.values()))
    return read_table(folder).pairs


def _report_and_learn(
    client: "PolicyClient",
    names: Sequence[str],
    chosen: Pairing,
    predicted: Slowdowns,
    remeasured: "Sequence[PairMeasurement]",
) -> dict[str, Any]:
    """Report what the chosen pairs really did, as a scheduler would, and predict again; empty without measurements."""
    from interfere.records import Progress

    rows = [row for row in rows_of(chosen, remeasured) if row.status.value == "ok"]
    if not rows:
        return {}
    progress_note("\n[5/5] reporting what was measured; the server learns")
    answers = client.observe(
        [
            Progress(
                observation_id=f"quickstart-{k}",
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
    )
    return {
        "observations": len(answers),
        "applied": sum(answer.result.value == "applied" for answer in answers),
        "error_before": prediction_error(chosen, predicted, rows),
        "error_after": prediction_error(chosen, predict_slowdowns(client, names), rows),
    }


def _note_unstable(table: "Table") -> None:
    unstable = sum(row.status.value != "ok" for row in table.pairs)
    if unstable:
        progress_note(
            f"{unstable} of {len(table.pairs)} measurements stayed unstable; they are left out, never filled in "
            "(reasons in the table)"
        )
