"""The report of a replay as one HTML page with its figures inside: nothing is loaded, nothing runs."""

import base64
import io
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from interfere.data.html_page.html_builder import Html, tag
from interfere.sim.study import Line
from interfere.sim.study_runs import Run
from interfere.training.replay.answer import Answer
from interfere.training.replay.plots import (
    change_by_policy,
    completion_curves,
    in_use,
    mean_by_policy,
    satisfaction_by_policy,
    satisfaction_change_by_policy,
)
from interfere.training.replay.tables import DEADLINES, STABLE, sections, verdicts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def page(answer: Answer) -> str:
    """The whole page: nothing is loaded, nothing runs."""
    study = answer.study
    body = [
        tag("h1", f"Replay of {answer.question.trace.name}"),
        tag("p", "What sharing devices would have done to this trace, by policy.", class_="lead"),
        *(tag("p", verdict, class_="verdict good") for verdict in verdicts(answer)),
        tag("ul", *(tag("li", note) for note in answer.notes)),
    ]
    for section in sections(study, answer.product):
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
    recorded = [run for run in runs if run.draw == run.tie == 0 and run.load < 1]
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
    recorded = [run for run in runs if run.draw == run.tie == 0]
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
