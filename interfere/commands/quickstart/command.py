"""The whole idea on this machine: profile, train, serve, match, and run the chosen pairing for real."""

import json
import random
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interfere.commands.output import JsonFlag, emit, err, jsonable, out, progress_note
from interfere.commands.quickstart import outcome
from interfere.commands.quickstart import steps as road
from interfere.commands.quickstart.pairings import Pairing, all_pairings, slowdowns, worth

if TYPE_CHECKING:
    from rich.console import Console

    from interfere.client import PolicyClient
    from interfere.data.tables import Table
    from interfere.records import PairMeasurement
    from interfere.wire.messages import ModelInfo

app = typer.Typer(add_completion=False)

DEVICE_TYPE, MODE = "cpu-core", "timeslice"
SHIPPED = "cpu"
HELD_OUT_SHARE = 1 / 3  # of this run's pairs of different jobs


@app.command()
def quickstart(
    work: Annotated[Path | None, typer.Option(help="Workspace. Default: ./interfere-work.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Twelve workloads instead of eight; twice as long.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Which pairs are held out, which random pairing is run.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Profile, train, serve, match, and run the chosen and a random pairing for real. Five to six minutes."""
    from interfere.config import load_settings

    place = load_settings(work=work).work
    # With --json standard output is for the document alone.
    report = _go(place, "twelve" if full else "eight", seed, err if as_json else out)
    path = place / "runs" / "quickstart" / "report.json"
    path.write_text(json.dumps(jsonable(report), indent=2) + "\n", encoding="utf-8")
    if as_json:
        emit(report, "", as_json=True)
    else:
        out.print(f"\nreport: {path}\ntables, models and runs: {place}/", soft_wrap=True)
        out.print(_next_steps(place, Path(report["training"]["folder"])), soft_wrap=True)


def _go(work: Path, workloads: str, seed: int, console: "Console") -> dict[str, Any]:
    from interfere.data.shipped_tables import shipped_table
    from interfere.data.tables import read_table
    from interfere.profiling.workloads import expand_names

    road.check_ready(work)
    why_not, begin = road.cannot_measure(), time.monotonic()
    if why_not:
        progress_note(f"This machine cannot measure: {why_not}. Every figure below is from the shipped table.")
    else:
        progress_note(
            "One CPU core, shared in time slices, stands in for a GPU: every figure below is of this very run."
        )
    runs, names = _fresh(work), expand_names(workloads)
    folder = shipped_table(SHIPPED)
    if not why_not:
        progress_note(
            f"\n[1/5] measuring {len(names)} jobs alone and in all {len(names) * (len(names) + 1) // 2} pairs"
        )
        folder = work / "tables" / "quickstart"
        road.measure_all(work, folder, workloads)
    table = read_table(folder)
    held_out = _held_out(names, seed)
    progress_note(f"\n[2/5] training; {len(held_out)} of the pairs are hidden from every model")
    data = [SHIPPED] if why_not else [SHIPPED, str(folder)]
    training = road.train(work, data, held_out)
    progress_note("\n[3/5] serving the published model, asking for the matching")
    with road.served(work, Path(training["folder"]), runs / "store.db", runs / "server.log") as client:
        predicted, chosen, decision = _ask(client, names)
        fresh = _run_again(work, chosen, names, seed) if not why_not else ()
        learnt = _teach(client, names, chosen, predicted, fresh)
        model = client.model()
    measured = slowdowns(table.pairs)
    unstable = sum(row.status.value != "ok" for row in table.pairs)
    if unstable:
        progress_note(
            f"{unstable} of {len(table.pairs)} measurements stayed unstable; they are left out, never filled in "
            "(reasons in the table)"
        )
    lines = outcome.compare(names, chosen, predicted, measured)
    lines += _again(chosen, names, seed, predicted, fresh)
    again = outcome.rows_of(chosen, fresh or table.pairs)
    found = outcome.difference(again, [row for row in table.pairs if {row.victim, row.neighbour} <= set(names)])
    _tell(console, lines, found, model, training, learnt, remeasured=bool(fresh))
    return {
        "measured_here": not why_not,
        "why_not_measured": why_not,
        "device": "one CPU core, time-sliced",
        "workloads": list(names),
        "held_out_pairs": [list(pair) for pair in held_out],
        "decision": decision,
        "pairings": outcome.lines_document(lines),
        "difference": asdict(found) | {"verdict": found.verdict, "chosen_run_again": bool(fresh)},
        "online": learnt,
        "training": training,
        "table": str(folder),
        "seconds": time.monotonic() - begin,
    }


def _fresh(work: Path) -> Path:
    """Folder of this run. A finished run starts anew; a killed one goes on from the pairs it measured."""
    runs = work / "runs" / "quickstart"
    if (runs / "report.json").exists():
        shutil.rmtree(work / "tables" / "quickstart", ignore_errors=True)
    for old in (work / "tables" / "quickstart-again", runs):
        shutil.rmtree(old, ignore_errors=True)
    runs.mkdir(parents=True)
    return runs


def _held_out(names: tuple[str, ...], seed: int) -> list[tuple[str, str]]:
    pairs = [(a, b) for k, a in enumerate(names) for b in names[k + 1 :]]
    return sorted(random.Random(seed).sample(pairs, round(len(pairs) * HELD_OUT_SHARE)))  # noqa: S311 - no secret


def _ask(
    client: "PolicyClient", names: tuple[str, ...]
) -> tuple[dict[tuple[str, str], float], Pairing, dict[str, Any]]:
    """Predicted slowdowns of all pairs, the chosen pairing, and the decision it came from."""
    from interfere.records import Device, Job, Snapshot

    predicted = _predicted(client, names)
    plan = client.match(
        Snapshot(
            pending=tuple(Job(id=name, workload=name) for name in names),
            devices=tuple(Device(id=f"core-{k + 1}", type=DEVICE_TYPE, mode=MODE) for k in range(len(names) // 2)),
        )
    )
    chosen = tuple((pair.job_id, pair.partner_id) for pair in plan.pairs)
    facts = {
        "decision_id": plan.decision_id,
        "model_version": plan.model_version,
        "status": str(plan.status),
        "cost": plan.cost,
        "greedy_cost": plan.greedy_cost,
        "lower_bound": plan.lower_bound,
    }
    return predicted, chosen, facts


def _predicted(client: "PolicyClient", names: tuple[str, ...]) -> dict[tuple[str, str], float]:
    answer = client.predict(names, device_type=DEVICE_TYPE, mode=MODE)
    indices = zip(answer.victim.tolist(), answer.neighbour.tolist(), strict=True)
    return {
        (names[i], names[j]): value for (i, j), value in zip(indices, answer.prediction.median.tolist(), strict=True)
    }


def _random_pairing(names: tuple[str, ...], seed: int) -> Pairing:
    return random.Random(seed + 1).choice(list(all_pairings(names)))  # noqa: S311 - no secret


def _run_again(work: Path, chosen: Pairing, names: tuple[str, ...], seed: int) -> "tuple[PairMeasurement, ...]":
    """Both pairings for real, afresh and interleaved: nothing of the first measurement is used."""
    from interfere.data.tables import read_table

    pairs = {frozenset(pair): pair for pair in (*chosen, *_random_pairing(names, seed))}
    progress_note(f"\n[4/5] running the chosen pairing and a random one for real: {len(pairs)} pairs, measured afresh")
    folder = work / "tables" / "quickstart-again"
    road.measure_pairs(work, folder, list(pairs.values()))
    table: Table = read_table(folder)
    return table.pairs


def _teach(
    client: "PolicyClient",
    names: tuple[str, ...],
    chosen: Pairing,
    before: dict[tuple[str, str], float],
    fresh: "tuple[PairMeasurement, ...]",
) -> dict[str, Any]:
    """Report what the chosen pairs really did, as a scheduler would, and ask again."""
    from interfere.records import Progress

    rows = [row for row in outcome.rows_of(chosen, fresh) if row.status.value == "ok"]
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
    after = _predicted(client, names)
    return {
        "observations": len(answers),
        "applied": sum(answer.result.value == "applied" for answer in answers),
        "error_before": outcome.prediction_error(chosen, before, rows),
        "error_after": outcome.prediction_error(chosen, after, rows),
    }


def _again(
    chosen: Pairing,
    names: tuple[str, ...],
    seed: int,
    predicted: dict[tuple[str, str], float],
    fresh: "tuple[PairMeasurement, ...]",
) -> list[outcome.Line]:
    if not fresh:
        return []
    both = (("chosen, run again", chosen), ("a random one, run", _random_pairing(names, seed)))
    return [
        outcome.Line(
            name=name, pairing=pairing, predicted=worth(pairing, predicted), measured=worth(pairing, slowdowns(fresh))
        )
        for name, pairing in both
    ]


def _tell(
    console: "Console",
    lines: list[outcome.Line],
    found: outcome.Difference,
    model: "ModelInfo",
    training: dict[str, Any],
    learnt: dict[str, Any],
    *,
    remeasured: bool,
) -> None:
    """The result as people read it."""
    console.print()
    console.print(outcome.grid(lines))
    for a, b in lines[0].pairing:
        console.print(f"  {a} shares a core with {b}", soft_wrap=True)
    source = "run again" if remeasured else "by the shipped table"
    console.print(
        f"\nchosen ({source}) minus random mean: {found.value:+.3f} mean slowdown, 95 % interval "
        f"[{found.lower:+.3f}, {found.upper:+.3f}]: {found.verdict}",
        soft_wrap=True,
    )
    name = training["champion"]
    scores = {split: by_model[name] for split, by_model in training["scores"].items() if name in by_model}
    text = ", ".join(f"{split} {one['mae']:.3f} ({one['mape']:.1f} %)" for split, one in scores.items())
    console.print(
        f"champion: {name}, version {model.version}; error of speed (of slowdown) on unseen {text}", soft_wrap=True
    )
    if learnt:
        console.print(
            f"online: {learnt['applied']} of {learnt['observations']} observations applied; error on the chosen pairs "
            f"{learnt['error_before']:.1%} before, {learnt['error_after']:.1%} after",
            soft_wrap=True,
        )


def _next_steps(work: Path, model: Path) -> str:
    where = "" if str(work) == "interfere-work" else f" --work {work}"
    return (
        "\nnext, to copy:\n"
        f"  interfere serve --model {model}{where}\n"
        "  interfere match --example\n"
        f"  interfere ui{where}"
    )
