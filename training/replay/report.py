"""A replay for programs (JSON, Parquet, CSV) and for people (a table, one HTML page with its figures inside)."""

import base64
import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from interfere.data.html_page.html_builder import Html, tag
from interfere.data.parquet import write_atomically
from interfere.sim.schedulers.registry import ORACLES, PREEMPTIVE, first_word
from interfere.sim.score import Difference
from interfere.sim.study import Line, Run, Study
from training.replay.plots import change_by_policy, completion_curves, in_use, mean_by_policy
from training.replay.question import Answer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = (
    "mean (h)",
    "against none",
    "median (h)",
    "p99 (h)",
    "slowdown",
    "waiting (h)",
    "in use",
    "shared",
    "past cap",
    "replay (s)",
)
SHORT = ("mean (h)", "against none", "p99 (h)", "slowdown")  # in 80 columns
LEGEND = (
    "mean, median, p99: completion time of all jobs, from arrival to the end; against none: change of the mean against "
    "the same without sharing, 95 % interval over traces; slowdown: completion over time alone; in use, shared: of "
    "device time; past cap: pairs that truly slowed a side beyond the cap"
)
STABLE, HEAVY = "Worlds with stable load", "Overloaded worlds: gains there grow with the length of the trace"


def document(answer: Answer, made: Sequence[Path]) -> dict[str, Any]:
    """Everything but the single jobs."""
    study = answer.study
    return {
        "question": {k: str(v) if isinstance(v, Path) else v for k, v in asdict(answer.question).items()},
        "notes": answer.notes,
        "verdicts": verdicts(study),
        "cap": study.cap,
        "stable": [asdict(line) for line in study.stable],
        "overloaded": [asdict(line) for line in study.overloaded],
        "runs": [_run(run) for run in study.runs],
        "files": [str(path) for path in made],
    }


def _run(run: Run) -> dict[str, Any]:
    head = {"policy": run.policy, "world": run.world, "draw": run.draw, "load": run.load, "seconds": run.seconds}
    return head | asdict(run.score)


def summary(answer: Answer) -> Group:
    """Notes, and a table of each kind of worlds."""
    parts: list[Text | Table] = [Text(note) for note in answer.notes]
    parts += [Text(told, style="bold") for told in verdicts(answer.study)]
    for title, lines in _kinds(answer.study):
        table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, padding=0, title_justify="left")
        table.add_column("policy", no_wrap=True)
        for column in SHORT:
            table.add_column(column, justify="right", no_wrap=True)
        for line in lines:
            cells = dict(zip(COLUMNS, _cells(line), strict=True))
            table.add_row(line.policy, *(cells[column] for column in SHORT))
        parts.append(table)
    parts.append(Text(LEGEND, style="dim"))
    return Group(*parts)


def verdicts(study: Study) -> list[str]:
    """Which policy ends jobs soonest on average, of all, of those that no scheduler need be a prophet for, and of those
    that stop nobody."""
    kinds = (
        ("of all", ()),
        ("without knowing durations beforehand", ORACLES),
        ("of those, without stopping jobs", (*ORACLES, *PREEMPTIVE)),
    )
    told = []
    for what, without in kinds:
        lines = [line for line in study.stable if first_word(line.policy) not in without]
        if lines:
            best = min(lines, key=lambda line: line.score.mean_completion_s)
            by_sharing = f", by sharing {_change(best.change)}" if best.change else ", which shares nothing"
            told.append(f"soonest {what}: {best.policy}, {_hours(best.score.mean_completion_s)} h{by_sharing}")
    return told


def _kinds(study: Study) -> list[tuple[str, tuple[Line, ...]]]:
    return [(title, lines) for title, lines in ((STABLE, study.stable), (HEAVY, study.overloaded)) if lines]


def _cells(line: Line) -> tuple[str, ...]:
    one = line.score
    return (
        _hours(one.mean_completion_s),
        _change(line.change),
        _hours(one.median_completion_s),
        _hours(one.p99_completion_s),
        f"{one.mean_slowdown:.2f}",
        _hours(one.mean_waiting_s),
        f"{one.utilisation:.0%}",
        f"{one.shared:.0%}",
        f"{one.past_cap:.1%}" if one.pairs else "",
        f"{line.seconds:.1f}",
    )


def _hours(time_s: float) -> str:
    return f"{time_s / 3600:,.2f}"


def _change(change: Difference | None) -> str:
    if change is None:
        return ""
    interval = "" if math.isnan(change.low) else f" [{100 * change.low:+.1f}, {100 * change.high:+.1f}]"
    return f"{100 * change.share:+.1f} %{interval}"


# --- files ------------------------------------------------------------------------------------------------------------


def write_report(folder: Path, answer: Answer) -> list[Path]:
    """`report.html`, `runs.csv` and `jobs.parquet`, each whole or not at all. Raises UnfitError where the folder cannot
    be written."""
    text = page(answer)
    made = [folder / "report.html", folder / "runs.csv", folder / "jobs.parquet"]
    write_atomically(made[0], lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))
    write_atomically(made[1], lambda temporary: Path(temporary).write_text(_csv(answer.study.runs), encoding="utf-8"))
    _write_jobs(made[2], answer.study.runs)
    return made


def _csv(runs: Iterable[Run]) -> str:
    rows = [_run(run) for run in runs]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _write_jobs(path: Path, runs: Iterable[Run]) -> None:
    """One row per job, world and policy, as recorded."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = []
    for run in runs:
        if (done := run.replayed) is None:
            continue
        jobs = done.world.jobs
        columns = {
            "policy": [run.policy] * len(jobs),
            "world": [run.world] * len(jobs),
            "job_id": [job.id for job in jobs],
            "workload": [job.workload for job in jobs],
            "gpus": [job.gpus for job in jobs],
            "arrival_s": [job.arrival_s for job in jobs],
            "duration_s": [job.duration_s for job in jobs],
            "started_s": done.started_s,
            "ended_s": done.ended_s,
            "stops": done.stops,
        }
        parts.append(pa.table(columns))
    write_atomically(path, lambda temporary: pq.write_table(pa.concat_tables(parts), temporary, compression="zstd"))


def page(answer: Answer) -> str:
    """The whole page: nothing is loaded, nothing runs."""
    study = answer.study
    body = [
        tag("h1", f"Replay of {answer.question.trace.name}"),
        tag("p", "What sharing devices would have done to this trace, by policy.", class_="lead"),
        *(tag("p", told, class_="verdict good") for told in verdicts(study)),
        tag("ul", *(tag("li", note) for note in answer.notes)),
    ]
    for title, lines in _kinds(study):
        body += [tag("h2", title), _html_table(lines), tag("p", LEGEND, class_="dim")]
        if title == STABLE:
            body += [_img(figure) for figure in _figures(lines, study.runs)]
    style = Html(files("interfere.data.html_page").joinpath("style.css").read_text(encoding="utf-8"))
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("title", f"Replay of {answer.question.trace.name}"),
        tag("style", style),
        tag("style", Html("figure { margin: 18px 0; } img { max-width: 100%; background: #fff; }")),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', tag('main', *body)), lang='en')}\n"


def _figures(lines: Sequence[Line], runs: Sequence[Run]) -> "list[Figure]":
    found = [mean_by_policy(lines, "Mean completion time, trace as recorded")]
    if any(line.change is not None for line in lines):
        found.append(change_by_policy(lines))
    recorded = [run for run in runs if run.draw == 0 and run.load < 1]
    found.append(completion_curves(recorded, "Jobs over within a time of their arrival, trace as recorded"))
    best = min((line for line in lines if line.against), key=lambda one: one.score.mean_completion_s, default=lines[0])
    busiest = max(recorded, key=lambda run: run.load).world
    shown = {run.policy: run.replayed for run in recorded if run.world == busiest}
    pair = [(name, one) for name in (best.against, best.policy) if name and (one := shown[name]) is not None]
    return [*found, in_use(pair, f"Devices of {busiest}, the busiest stable world")]


def _img(figure: "Figure") -> Html:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    source = f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"
    return tag("figure", tag("img", src=source, alt=_title(figure)))


def _title(figure: "Figure") -> str:
    return (figure.get_suptitle() or figure.axes[0].get_title()).replace("\n", " ")


def _html_table(lines: Sequence[Line]) -> Html:
    head = tag("tr", tag("th", "policy"), *(tag("th", column, class_="number") for column in COLUMNS))
    rows = [
        tag("tr", tag("th", line.policy), *(tag("td", cell, class_="number") for cell in _cells(line)))
        for line in lines
    ]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *rows), class_="plain"), class_="scroll")
