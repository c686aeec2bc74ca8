"""Figures of the documentation: computed from the shipped tables and answers of a server of the shipped model.

A page asks for a figure by a block of code whose language is `figure NAME`; what the block says is the caption. The
figures are drawn as reports are, by `interfere.reports`, and follow the light and the dark colours of the site.
"""

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import interfere.reports
from interfere import Action, Device, Job, JobProfile, Plan, PolicyClient, Progress, Snapshot, load_table, match_pairs
from interfere.config import SHIPPED_MODEL, Settings
from interfere.data.cards.domain_section import slowdown_map
from interfere.data.cards.domain_summary import domain_summaries
from interfere.reports import document as doc
from interfere.reports.html_page import figure_html
from interfere.reports.numbers import DURATION, PLAIN, TIMES
from interfere.reports.svg import join, tag
from interfere.serving.server import start_server
from interfere.timeline.kernel_schedulers import select_kernel_schedulers
from interfere.timeline.mode_comparison import compare_sharing_modes, kernel_lanes, scenario_from_profiles

_LAYERS = re.compile(r"^```layers ([\w.]+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"^```figure ([\w-]+)\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
_DEVICE = "cpu-core"
NEW_JOB, ASKED = "vae-train-gang", "stream"  # a job of the table `core` that no model was trained on, and its neighbour
RUN_TIMES_S = {  # alone; of workloads of the shipped model
    "gemm": 600.0,
    "rl-rollout": 700.0,
    "request-server": 900.0,
    "bert-infer": 1200.0,
    "stream": 1500.0,
    "gnn-train": 1800.0,
    "resnet-train": 2400.0,
}
MATCHED = (
    "bert-infer",
    "bert-serve",
    "gpt-decode",
    "request-server",
    "resnet-input",
    "resnet-train",
    "rl-rollout",
    "stream",
)
HIGH, LOW, SHOWN_S = "request-server", "stream", 0.06  # the two jobs of the figure of gap filling


def with_figures(markdown: str) -> str:
    """Return the Markdown text with its figures drawn: blocks that name one, and blocks of layers of packages."""
    markdown = _LAYERS.sub(lambda block: layers_markup(block[1], block[2]), markdown)
    return _BLOCK.sub(lambda block: figure_markup(block[1], " ".join(block[2].split())), markdown)


def layers_markup(package: str, text: str) -> str:
    """Return the layers of a package, one a line with a remark after two spaces, as rows of boxes below its name."""
    rows = [tag("p", tag("b", f"Layers inside {package}, from high to low"))]
    for line in text.splitlines():
        names, _, remark = line.partition("  ")
        boxes = (tag("span", name, class_="package") for name in names.split(" | "))
        pieces = (tag("code", piece) if k % 2 else piece for k, piece in enumerate(remark.strip().split("`")))
        rows.append(tag("div", tag("div", *boxes), tag("div", *pieces, class_="dim"), class_="layer"))
    return f"{tag('div', *rows, class_='report layers', markdown='0')}\n"


@cache
def figure_markup(name: str, caption: str) -> str:
    """Return the drawings of a figure above their caption, as markup. Raises KeyError for an unknown name."""
    drawings = join(figure_html(figure) for figure in FIGURES[name]())
    return f"{tag('div', drawings, tag('p', caption, class_='dim'), class_='report', markdown='0')}\n"


def figure_styles() -> str:
    """Return the style sheet of reports, limited to figures, with the colours of the page around them."""
    text = files(interfere.reports).joinpath("style.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?)\n\s*\}", text, re.DOTALL)
    rules = text[text.index(".lead {") : text.index("@media (max-width")]
    page = "--page: var(--md-default-bg-color);"
    dark_rule = f"[data-md-color-scheme=slate] .report {{ {dark} {page} }}"
    return f".report {{ {light} {page} }}\n{dark_rule}\n.report {{\n{rules}\n}}\n"


def slowdown_matrix() -> tuple[doc.Figure, ...]:
    """Return the measured slowdowns of the shipped table `cpu`."""
    (domain,) = domain_summaries(load_table("cpu"))
    return (slowdown_map(domain),)


def narrowing_belief() -> tuple[doc.Figure, ...]:
    """Return what a server predicts of one pair, before and after windows of other pairs and of this pair."""
    measured, predicted = belief_of_new_job()
    series = (
        doc.Series(name=f"predicted {NEW_JOB} beside {ASKED}, 90 % interval"),
        doc.Series(name="measured in this window", mark=doc.Mark.DIAMOND, colour=doc.Colour.ORANGE),
    )
    beliefs = tuple(
        doc.Point(float(k), value, low, high, f"after {k} windows: {value:.2f} × ({low:.2f} to {high:.2f})")
        for k, (value, low, high) in enumerate(predicted)
    )
    windows = tuple(
        doc.Point(float(k), value, label=f"window {k}, beside {neighbour}: {value:.2f} ×")
        for k, (neighbour, value) in enumerate(measured, start=1)
    )
    truth = measured[-1][1]
    plot = doc.LinePlot(
        title=f"Belief about {NEW_JOB} beside {ASKED}; the last two windows are of this pair",
        x=doc.Axis(title="windows observed", form=PLAIN, low=-0.4, high=len(measured) + 0.4),
        y=doc.Axis(title="slowdown", form=TIMES, is_log=True, low=0.9, high=2.2, lines=((truth, "measured"),)),
        series=series,
        panels=(doc.Panel(points=(beliefs, windows)),),
    )
    return (plot,)


def plan_over_time() -> tuple[doc.Figure, ...]:
    """Return a plan of seven jobs on two devices: what starts now, and what is planned for later."""
    actions = sorted(planned().actions, key=lambda action: action.planned_start_s)
    lanes: dict[str, list[doc.Box]] = {"d0": [], "d1": []}
    for action in actions:
        lane = lanes[action.device_id or _lane_with_room(lanes, action)]
        start, end = action.planned_start_s, action.planned_end_s
        lane.append(doc.Box(start=start, end=end, series=int(start > 0), text=action.job_id))
    return (
        doc.Lanes(
            title="Plan for seven jobs on two devices, of which each takes two jobs at a time",
            axis=doc.Axis(title="time from now", form=DURATION, low=0.0),
            series=(doc.Series(name="starts now"), doc.Series(name="planned for later", colour=doc.Colour.GREY)),
            lanes=tuple(doc.Lane(label=name, boxes=tuple(boxes)) for name, boxes in lanes.items()),
        ),
    )


def matching_with_bound() -> tuple[doc.Figure, ...]:
    """Return the cost of every pairing of eight jobs, with that of the matching, and its lower bound."""
    cost = pair_costs(MATCHED)
    matching = match_pairs(cost)
    every = sorted(float(sum(cost[i, j] for i, j in pairing)) for pairing in pairings(tuple(range(len(MATCHED)))))
    greedy = greedy_cost(cost)
    tick, dot = doc.Series(name="a pairing", mark=doc.Mark.TICK), doc.Series(name="chosen", mark=doc.Mark.DIAMOND)
    rows = (
        doc.PlotRow(label=f"all {len(every)} pairings", values=(tuple(map(doc.Estimate, every)), ())),
        doc.PlotRow(label="greedy", values=((), (doc.Estimate(greedy),))),
        doc.PlotRow(label="matching", values=((), (doc.Estimate(matching.cost),))),
    )
    bound = matching.lower_bound
    axis = doc.Axis(
        title="cost Σ (slowdown − 1) over all jobs", form=PLAIN, low=0.9 * bound, lines=((bound, "lower bound"),)
    )
    return (doc.RowPlot(title="Eight jobs of the table cpu on four devices", axis=axis, series=(tick, dot), rows=rows),)


def gap_filling() -> tuple[doc.Figure, ...]:
    """Return the kernels of two jobs, replayed in one queue and with the low job in the gaps of the high one."""
    by_name = {job.workload: job for job in load_table("cpu").jobs}
    scenario = scenario_from_profiles(by_name[HIGH], by_name[LOW])
    modes = select_kernel_schedulers(("queued", "filling"), _DEVICE)
    results = compare_sharing_modes(scenario, modes, record_spans_until_s=SHOWN_S)
    return tuple(kernel_lanes(result, scenario, SHOWN_S) for result in results)


FIGURES: Mapping[str, Callable[[], tuple[doc.Figure, ...]]] = {
    "slowdown-matrix": slowdown_matrix,
    "narrowing-belief": narrowing_belief,
    "plan-over-time": plan_over_time,
    "matching-with-bound": matching_with_bound,
    "gap-filling": gap_filling,
}
"""The name of a figure → its drawings."""


@contextmanager
def _server() -> Iterator[PolicyClient]:
    with tempfile.TemporaryDirectory() as work:
        server = start_server(Settings(model=SHIPPED_MODEL, work=Path(work), port=0))
        try:
            with PolicyClient(server.address) as client:
                yield client
        finally:
            server.stop()


@cache
def belief_of_new_job() -> tuple[list[tuple[str, float]], list[tuple[float, float, float]]]:
    """Return the windows that a server is told of, as (neighbour, measured slowdown), and its predictions.

    Prediction k is (median, 5 % quantile, 95 % quantile) of the asked pair after k windows.
    """
    table = load_table("core")
    profile = next(job for job in table.jobs if job.workload == NEW_JOB)
    learned = {job.workload for job in load_table("cpu").jobs}
    rows = {pair.neighbour: pair.slowdown for pair in table.ok_pairs if pair.victim == NEW_JOB}
    others = sorted(name for name in rows if name in learned and name != ASKED)
    windows = [(name, rows[name]) for name in (*others, ASKED, ASKED)]
    with _server() as client:
        client.register_profiles([profile])
        predicted = [_predicted(client, profile)]
        for k, (neighbour, slowdown) in enumerate(windows):
            window = Progress(
                observation_id=f"o{k}",
                job_id="j",
                workload=NEW_JOB,
                company=(neighbour,),
                device_type=_DEVICE,
                start_s=60.0 * k,
                end_s=60.0 * (k + 1),
                slowdown=slowdown,
            )
            client.observe([window])
            predicted.append(_predicted(client, profile))
    return windows, predicted


def _predicted(client: PolicyClient, profile: JobProfile) -> tuple[float, float, float]:
    answer = client.predict([NEW_JOB, ASKED], pairs=[(0, 1)], device_type=profile.device_type).prediction
    return float(answer.median[0]), float(answer.lower[0]), float(answer.upper[0])


@cache
def planned() -> Plan:
    """Return the plan of a server for jobs that say how long they run."""
    jobs = tuple(Job(id=name, workload=name, remaining_s=run_time_s) for name, run_time_s in RUN_TIMES_S.items())
    devices = tuple(Device(id=name, type=_DEVICE) for name in ("d0", "d1"))
    with _server() as client:
        return client.match(Snapshot(pending=jobs, devices=devices, now_s=0.0))


def _lane_with_room(lanes: Mapping[str, Sequence[doc.Box]], action: Action) -> str:
    """Return the first device on which fewer than two jobs run when a job of a later time is to start."""
    start_s = action.planned_start_s
    busy = {name: sum(box.start <= start_s < box.end for box in boxes) for name, boxes in lanes.items()}
    return next(name for name, count in sorted(busy.items(), key=lambda entry: entry[1]) if count < 2)


def pair_costs(names: Sequence[str]) -> NDArray[np.float64]:
    """Return float64[n, n]: what each pair costs together, the sum of both slowdowns less 2, from the table `cpu`."""
    slowdown = {(pair.victim, pair.neighbour): pair.slowdown for pair in load_table("cpu").ok_pairs}
    return np.array([[slowdown[a, b] + slowdown[b, a] - 2.0 for b in names] for a in names])


def pairings(jobs: tuple[int, ...]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield every way to divide an even number of jobs into pairs."""
    if not jobs:
        yield ()
    for k in range(1, len(jobs)):
        for rest in pairings(jobs[1:k] + jobs[k + 1 :]):
            yield ((jobs[0], jobs[k]), *rest)


def greedy_cost(cost: NDArray[np.float64]) -> float:
    """Return the cost of taking the cheapest pair of the remaining jobs again and again."""
    jobs, total = set(range(len(cost))), 0.0
    while jobs:
        i, j = min(((i, j) for i in jobs for j in jobs if i < j), key=lambda pair: float(cost[pair]))
        total, jobs = total + float(cost[i, j]), jobs - {i, j}
    return total
