"""A replay as a report for programs (JSON, Parquet, CSV) and for people (tables, one HTML page with its figures)."""

import base64
import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from interfere.data.html_page.html_builder import Html, tag
from interfere.data.parquet import write_atomically
from interfere.sim.edge_world import save_draws
from interfere.sim.schedulers.registry import DEADLINE_BASELINE, parse_name
from interfere.sim.score import Difference, Score, TraceMean
from interfere.sim.study import Line, Run, Study
from training.replay.plots import (
    change_by_policy,
    completion_curves,
    in_use,
    mean_by_policy,
    satisfaction_by_policy,
    satisfaction_change_by_policy,
)
from training.replay.question import Answer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWS_FILE = "deadlines.json"


# --- tables -----------------------------------------------------------------------------------------------------------


def _hours(time_s: float) -> str:
    return f"{time_s / 3600:,.2f}"


def _change(change: Difference | None) -> str:
    if change is None:
        return ""
    interval = "" if math.isnan(change.low) else f" [{100 * change.low:+.1f}, {100 * change.high:+.1f}]"
    return f"{100 * change.share:+.1f} %{interval}"


def _satisfaction(line: Line) -> float:
    return line.satisfaction.mean if line.satisfaction is not None else 0.0


def _percent(share: TraceMean | None) -> str:
    if share is None:
        return ""
    interval = "" if math.isnan(share.low) else f" [{100 * share.low:.0f}, {100 * share.high:.0f}]"
    return f"{100 * share.mean:.1f}{interval}"


def _points(change: TraceMean | None) -> str:
    if change is None:
        return ""
    interval = "" if math.isnan(change.low) else f" [{100 * change.low:+.1f}, {100 * change.high:+.1f}]"
    return f"{100 * change.mean:+.1f}{interval}"


def _wasted(score: Score) -> str:
    return f"{100 * score.wasted_gpu_h / score.used_gpu_h:.1f}" if score.used_gpu_h else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table of policies."""

    title: str
    cell: Callable[[Line], str]
    is_short: bool = False  # is it in the table of 80 characters?
    is_full: bool = True  # is it on the page?


COLUMNS = (
    Column(title="mean (h)", cell=lambda line: _hours(line.score.mean_completion_s), is_short=True),
    Column(title="against none", cell=lambda line: _change(line.change), is_short=True),
    Column(title="median (h)", cell=lambda line: _hours(line.score.median_completion_s)),
    Column(title="p99 (h)", cell=lambda line: _hours(line.score.p99_completion_s), is_short=True),
    Column(title="slowdown", cell=lambda line: f"{line.score.mean_slowdown:.2f}", is_short=True),
    Column(title="waiting (h)", cell=lambda line: _hours(line.score.mean_waiting_s)),
    Column(title="in use", cell=lambda line: f"{line.score.utilisation:.0%}"),
    Column(title="shared", cell=lambda line: f"{line.score.shared:.0%}"),
    Column(title="past cap", cell=lambda line: f"{line.score.past_cap:.1%}" if line.score.pairs else ""),
    Column(title="replay (s)", cell=lambda line: f"{line.seconds:.1f}"),
)
LEGEND = (
    "mean, median, p99: completion time of all jobs, from arrival to end; against none: change of the mean against the "
    "same policy without sharing, 95 % interval over traces; slowdown: completion time over run time without sharing; "
    "in use, shared: of device time; past cap: pairs that truly slowed a side beyond the cap"
)
DEADLINE_COLUMNS = (
    Column(title="met (%)", cell=lambda line: f"{100 * _satisfaction(line):.1f}", is_short=True, is_full=False),
    Column(title="met (%)", cell=lambda line: _percent(line.satisfaction)),
    Column(title="against drop", cell=lambda line: _points(line.satisfaction_change), is_short=True),
    Column(
        title="effort (h)",
        cell=lambda line: _hours(line.best_effort_s.mean) if line.best_effort_s is not None else "",
        is_short=True,
    ),
    Column(title="waste", cell=lambda line: _wasted(line.score), is_short=True),
    Column(
        title="broken",
        cell=lambda line: f"{line.score.broken}/{line.score.promised}" if line.score.promised else "",
        is_short=True,
    ),
    Column(title="dropped", cell=lambda line: f"{line.score.dropped}"),
    Column(title="in use (%)", cell=lambda line: f"{100 * line.score.utilisation:.0f}"),
    Column(title="shared (%)", cell=lambda line: f"{100 * line.score.shared:.0f}"),
    Column(title="stops", cell=lambda line: f"{line.score.stops}"),
    Column(title="replay (s)", cell=lambda line: f"{line.seconds:.1f}"),
)
DEADLINE_LEGEND = (
    "met: deadlines met over all submitted jobs that have one, mean of the traces and its 95 % interval; against drop: "
    f"difference in points, trace by trace, to {DEADLINE_BASELINE} (with +greedy, where the policy shares); effort: "
    "mean completion time of jobs without a deadline; waste: percentage of device time spent on jobs that missed their "
    "deadline, and on checkpoints; broken: promised deadlines that were missed, of all promised"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The policies on one group of traces."""

    title: str
    lines: tuple[Line, ...]
    columns: tuple[Column, ...]
    legend: str

    def table(self) -> Table:
        """For a terminal of 80 characters."""
        table = Table(title=self.title, box=SIMPLE_HEAD, pad_edge=False, padding=0, title_justify="left")
        table.add_column("policy", no_wrap=True)
        columns = [column for column in self.columns if column.is_short]
        for column in columns:
            table.add_column(column.title, justify="right", no_wrap=True)
        for line in self.lines:
            table.add_row(line.policy, *(column.cell(line) for column in columns))
        return table

    def html(self) -> Html:
        """For the page."""
        columns = [column for column in self.columns if column.is_full]
        head = tag("tr", tag("th", "policy"), *(tag("th", column.title, class_="number") for column in columns))
        rows = [
            tag(
                "tr",
                tag("th", line.policy),
                *(tag("td", column.cell(line), class_="number") for column in columns),
            )
            for line in self.lines
        ]
        return tag("div", tag("table", tag("thead", head), tag("tbody", *rows), class_="plain"), class_="scroll")


STABLE = "Worlds with stable load"
OVERLOADED = "Overloaded worlds: gains there grow with the length of the trace"
DEADLINES = "Worlds with deadlines and edge devices"


def sections(study: Study) -> list[Section]:
    """One section for each group of traces that there is; schedulers of deadlines best first."""
    best_first = sorted(study.deadlines, key=lambda line: -_satisfaction(line))
    groups = [
        Section(title=STABLE, lines=study.stable, columns=COLUMNS, legend=LEGEND),
        Section(title=OVERLOADED, lines=study.overloaded, columns=COLUMNS, legend=LEGEND),
        Section(title=DEADLINES, lines=tuple(best_first), columns=DEADLINE_COLUMNS, legend=DEADLINE_LEGEND),
    ]
    return [group for group in groups if group.lines]


def summary(answer: Answer) -> Group:
    """Notes, verdicts, and a table of each group of traces."""
    parts: list[Text | Table] = [Text(note) for note in answer.notes]
    parts += [Text(verdict, style="bold") for verdict in verdicts(answer.study)]
    groups = sections(answer.study)
    parts += [group.table() for group in groups]
    parts += [Text(legend, style="dim") for legend in dict.fromkeys(group.legend for group in groups)]
    return Group(*parts)


def verdicts(study: Study) -> list[str]:
    """Which policy ends jobs soonest on average, or meets most deadlines: of all policies, and of those that could be
    run in practice."""
    unknown = [line for line in study.stable if not parse_name(line.policy).knows_durations]
    nonpreemptive = [line for line in unknown if not parse_name(line.policy).is_preemptive]
    texts = []
    for description, lines in (
        ("of all", study.stable),
        ("without knowing durations beforehand", unknown),
        ("of those, without stopping jobs", nonpreemptive),
    ):
        if lines:
            best = min(lines, key=lambda line: line.score.mean_completion_s)
            by_sharing = f", by sharing {_change(best.change)}" if best.change else ", which shares nothing"
            texts.append(f"soonest {description}: {best.policy}, {_hours(best.score.mean_completion_s)} h{by_sharing}")
    unshared = [line for line in study.deadlines if not parse_name(line.policy).sharing]
    for description, lines in (("of all", study.deadlines), ("without sharing", unshared)):
        if lines:
            best = max(lines, key=_satisfaction)
            texts.append(f"most deadlines met {description}: {best.policy}, {_percent(best.satisfaction)} %")
    return texts


# --- files ------------------------------------------------------------------------------------------------------------


def document(answer: Answer, written: Sequence[Path]) -> dict[str, Any]:
    """Everything but the single jobs. `written`: the files of the report."""
    study = answer.study
    content: dict[str, Any] = {
        "question": {k: str(v) if isinstance(v, Path) else v for k, v in asdict(answer.question).items()},
        "notes": answer.notes,
        "verdicts": verdicts(study),
        "cap": study.cap,
        "stable": [asdict(line) for line in study.stable],
        "overloaded": [asdict(line) for line in study.overloaded],
        "runs": [_run(run) for run in study.runs],
        "files": [str(path) for path in written],
    }
    if answer.deadline_draws:
        recorded = [run for run in study.runs if run.draw == 0]
        content["deadlines"] = [asdict(line) for line in study.deadlines]
        content["worlds"] = list(dict.fromkeys(run.world for run in recorded))
        content["draws_file"] = next((str(path) for path in written if path.name == DRAWS_FILE), "")
        content["schedulers"] = {
            policy: [_score(run.score) for run in recorded if run.policy == policy]
            for policy in answer.question.policies
        }
    return content


def _score(score: Score) -> dict[str, Any]:
    return asdict(score) | {"satisfaction": score.satisfaction}


def _run(run: Run) -> dict[str, Any]:
    head = {"policy": run.policy, "world": run.world, "draw": run.draw, "load": run.load, "seconds": run.seconds}
    return head | _score(run.score)


def write_report(folder: Path, answer: Answer) -> list[Path]:
    """Write `report.html`, `runs.csv`, `jobs.parquet`, and with deadlines `deadlines.json`, each whole or not at all.

    Raises UnfitError where the folder cannot be written.
    """
    runs = answer.study.runs
    written: list[Path] = []

    def write(name: str, save: Callable[[str], object]) -> None:
        write_atomically(folder / name, save)
        written.append(folder / name)

    text = page(answer)
    write("report.html", lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))
    write("runs.csv", lambda temporary: Path(temporary).write_text(_csv(runs), encoding="utf-8"))
    write("jobs.parquet", lambda temporary: _write_jobs(temporary, runs))
    if answer.deadline_draws:
        write(DRAWS_FILE, lambda temporary: save_draws(Path(temporary), answer.deadline_draws))
    return written


def _csv(runs: Iterable[Run]) -> str:
    rows = [_run(run) for run in runs]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _write_jobs(path: str, runs: Iterable[Run]) -> None:
    """One row per job, world and policy, of the trace as recorded. No deadline and no promise are null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = []
    for run in runs:
        if (replayed := run.replayed) is None:
            continue
        jobs = replayed.world.jobs
        columns = {
            "policy": [run.policy] * len(jobs),
            "world": [run.world] * len(jobs),
            "job_id": [job.id for job in jobs],
            "workload": [job.workload for job in jobs],
            "gpus": [job.gpus for job in jobs],
            "arrival_s": [job.arrival_s for job in jobs],
            "duration_s": [job.duration_s for job in jobs],
            "started_s": replayed.started_s,
            "ended_s": replayed.ended_s,
            "stops": replayed.stops,
            "deadline_s": pa.array([job.deadline_s if job.has_deadline else None for job in jobs], pa.float64()),
            "promised_s": pa.array(replayed.promised_s, pa.float64(), from_pandas=True),
        }
        parts.append(pa.table(columns))
    pq.write_table(pa.concat_tables(parts), path, compression="zstd")


# --- the page ---------------------------------------------------------------------------------------------------------


def page(answer: Answer) -> str:
    """The whole page: nothing is loaded, nothing runs."""
    study = answer.study
    body = [
        tag("h1", f"Replay of {answer.question.trace.name}"),
        tag("p", "What sharing devices would have done to this trace, by policy.", class_="lead"),
        *(tag("p", verdict, class_="verdict good") for verdict in verdicts(study)),
        tag("ul", *(tag("li", note) for note in answer.notes)),
    ]
    for section in sections(study):
        body += [tag("h2", section.title), section.html(), tag("p", section.legend, class_="dim")]
        if section.title == STABLE:
            body += [_img(figure) for figure in _completion_figures(section.lines, study.runs)]
        if section.title == DEADLINES:
            body += [_img(figure) for figure in _deadline_figures(section.lines, study.runs)]
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


def _completion_figures(lines: Sequence[Line], runs: Sequence[Run]) -> "list[Figure]":
    figures = [mean_by_policy(lines, "Mean completion time, trace as recorded")]
    if any(line.change is not None for line in lines):
        figures.append(change_by_policy(lines))
    recorded = [run for run in runs if run.draw == 0 and run.load < 1]
    figures.append(completion_curves(recorded, "Jobs over within a time of their arrival, trace as recorded"))
    best = min(
        (line for line in lines if line.against), key=lambda line: line.score.mean_completion_s, default=lines[0]
    )
    world = max(recorded, key=lambda run: run.load).world
    names = [name for name in (best.against, best.policy) if name]
    return [*figures, _in_use(names, recorded, world, f"Devices of {world}, the busiest stable world")]


def _deadline_figures(lines: Sequence[Line], runs: Sequence[Run]) -> "list[Figure]":
    figures = [satisfaction_by_policy(lines)]
    if any(line.satisfaction_change is not None for line in lines):
        figures.append(satisfaction_change_by_policy(lines))
    recorded = [run for run in runs if run.draw == 0]
    world = max(recorded, key=lambda run: run.load).world
    best = lines[0]
    names = [name for name in (best.deadlines_against, best.policy) if name]
    return [*figures, _in_use(names, recorded, world, f"Devices of {world}, the world with the highest load")]


def _in_use(names: Sequence[str], recorded: Sequence[Run], world: str, title: str) -> "Figure":
    by_name = {run.policy: run.replayed for run in recorded if run.world == world}
    replays = [(name, replayed) for name in names if (replayed := by_name[name]) is not None]
    return in_use(replays, title)


def _img(figure: "Figure") -> Html:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    source = f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"
    return tag("figure", tag("img", src=source, alt=_title(figure)))


def _title(figure: "Figure") -> str:
    return (figure.get_suptitle() or figure.axes[0].get_title()).replace("\n", " ")
