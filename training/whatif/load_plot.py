"""Inline SVG panels: what sharing changes at each load, one panel a queue, all on the same axes.

Laws: a panel shows nothing that the table below it does not say in figures; an end of an interval beyond the axis is
cut off at its edge.
"""

import math
from collections.abc import Callable, Sequence

from interfere.data.html_page.html_builder import Html, tag
from interfere.sim.schedulers.names import GREEDY
from interfere.training.whatif.effects import Effect
from interfere.training.whatif.wording import change_text

WIDTH, HEIGHT = 340.0, 190.0  # SVG user units
LEFT, RIGHT, TOP, BOTTOM = 44.0, 12.0, 8.0, 36.0
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)  # between two ticks of the share axis
MAX_TICKS = 6
SHIFT = 0.007  # of the assumed marks beside the measured ones, in load
Scale = Callable[[float], float]  # a value -> its place in user units
STYLE = """
.plain tbody th { min-width: 140px; overflow-wrap: break-word; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(270px, 1fr)); gap: 10px 22px;
  margin: 10px 0 16px; }
.panels figure { margin: 0; } .panels figcaption { font-size: 13px; }
.panels svg { display: block; width: 100%; max-width: 420px; height: auto; }
.measured circle { fill: var(--suffers); } .measured line { stroke: var(--suffers); stroke-width: 1.6; }
.assumed circle { fill: var(--page); stroke: var(--causes); stroke-width: 1.6; }
.assumed line { stroke: var(--causes); stroke-width: 1.2; }
.own path { fill: var(--ink); } .own line { stroke: var(--ink); stroke-width: 1.6; }
.key { display: inline-block; width: 11px; height: 11px; border-radius: 50%; vertical-align: -1px; margin-right: 4px; }
.key.filled { background: var(--suffers); } .key.hollow { border: 1.6px solid var(--causes); }
.key.diamond { background: var(--ink); border-radius: 0; transform: rotate(45deg) scale(.8); }
"""


def load_panels(effects: Sequence[Effect], queues: Sequence[str]) -> Html:
    """One panel for each queue: greedy placement at each load, as measured and with the assumption about gangs."""
    shown = [effect for effect in effects if is_shown(effect)]
    low, high, step = _share_axis(shown)
    loads = [effect.load for effect in shown]
    span = (min(loads) - 0.05, max(loads) + 0.05)
    panels = []
    for queue in queues:
        own = [effect for effect in shown if effect.queue == queue]
        if own:
            svg = _panel(own, (low, high, step), span)
            panels.append(tag("figure", tag("figcaption", tag("code", queue)), svg))
    return tag("div", *panels, class_="panels")


def is_shown(effect: Effect) -> bool:
    """Is an effect on a panel?"""
    plain = math.isinf(effect.max_slowdown) and not effect.is_other_scenario and not effect.overloaded
    return plain and effect.sharing == GREEDY and effect.change is not None


def _share_axis(effects: Sequence[Effect]) -> tuple[float, float, float]:
    """The ends of the common axis, which holds 0, every mean, and intervals up to three times as far as the means."""
    means = [effect.change.mean for effect in effects if effect.change is not None]
    limit = 3 * max(0.01, *(abs(mean) for mean in means))
    ends = [
        end
        for effect in effects
        if effect.change is not None and effect.change.interval.is_known
        for end in (effect.change.interval.low, effect.change.interval.high)
    ]
    low = max(-limit, min(0.0, *means, *ends)) if means else -0.1
    high = min(limit, max(0.0, *means, *ends)) if means else 0.1
    step = next((step for step in STEPS if (high - low) / step <= MAX_TICKS), STEPS[-1])
    return math.floor(low / step) * step, max(step, math.ceil(high / step) * step), step


def _panel(effects: Sequence[Effect], axis: tuple[float, float, float], span: tuple[float, float]) -> Html:
    low, high, step = axis

    def x(load: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (load - span[0]) / (span[1] - span[0])

    def y(share: float) -> float:
        inside = min(high, max(low, share))
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - inside) / (high - low)

    marks = []
    for k in range(round((high - low) / step) + 1):
        share = low + k * step
        class_ = "one" if abs(share) < step / 2 else "grid"
        marks.append(tag("line", class_=class_, x1=LEFT, x2=WIDTH - RIGHT, y1=y(share), y2=y(share)))
        marks.append(
            tag("text", f"{100 * share:+.0f} %".replace("+0 %", "0 %"), x=LEFT - 6, y=y(share) + 4, text_anchor="end")
        )
    for load in sorted({effect.target_load for effect in effects if effect.target_load is not None}):
        label = f"{load:g}".removeprefix("0")
        marks.append(tag("text", label, x=x(load), y=HEIGHT - BOTTOM + 15, text_anchor="middle"))
    marks.append(tag("text", "offered load", x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 4, text_anchor="middle"))
    marks += [_mark(effect, x, y) for effect in effects]
    label = f"{effects[0].queue}: change of the mean completion time by load"
    return tag("svg", *marks, viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}", role="img", aria_label=label)


def _mark(effect: Effect, x: Scale, y: Scale) -> Html:
    change = effect.change
    assert change is not None
    at = x(effect.load + (SHIFT if effect.gangs_share else 0.0))
    parts = [tag("title", f"load {effect.load:.2f}: {change_text(change)}")]
    if change.interval.is_known:
        parts.append(tag("line", x1=at, x2=at, y1=y(change.interval.high), y2=y(change.interval.low)))
    height = y(change.mean)
    if effect.target_load is None and not effect.gangs_share:
        parts.append(tag("path", d=f"M{at - 5:.5g} {height:.5g}l5 -5l5 5l-5 5Z"))
        return tag("g", *parts, class_="own")
    parts.append(tag("circle", cx=at, cy=height, r=3.6))
    return tag("g", *parts, class_="assumed" if effect.gangs_share else "measured")
