"""Draws README's picture: who slows whom in the shipped table of one core, and the pairing that the server chooses.

`python -m tests.docs.picture` (make gen) writes docs/pairing-light.svg and docs/pairing-dark.svg anew.
"""

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from interfere.client import PolicyClient
from interfere.commands.match import example_snapshot
from interfere.config import SHIPPED_MODEL, Settings
from interfere.data.loading import shipped_table
from interfere.data.tables import read_table
from interfere.records import Plan, Snapshot
from interfere.reports.svg import Html, tag
from interfere.serving.server import start_server
from tests.docs.architecture_page import ROOT

Colour = tuple[int, int, int]
CELL, LEFT, TOP, GAP = 44, 112, 104, 56  # pixels
BOX_WIDTH, BOX_HEIGHT = 250, 62
HIGHEST = 2.2  # slowdowns from here on have the darkest colour of the scale
FONT = "font-family:-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;font-size:12px"


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """The colours of one picture."""

    name: str
    text: str
    muted: str
    frame: str
    low: Colour  # of no slowdown
    high: Colour  # of `HIGHEST` and more


LIGHT = Theme(name="light", text="#1f2328", muted="#59636e", frame="#0550ae", low=(255, 247, 236), high=(215, 80, 20))
DARK = Theme(name="dark", text="#e6edf3", muted="#9198a1", frame="#79c0ff", low=(33, 38, 45), high=(200, 84, 30))


def decision(address: str) -> tuple[Snapshot, Plan]:
    """The request of `interfere match --example` and what a server of the shipped model answers."""
    with PolicyClient(address) as client:
        snapshot = example_snapshot(client.model())
        return snapshot, client.match(snapshot)


def slowdowns() -> dict[tuple[str, str], float]:
    """The measured slowdown of each (victim, neighbour) of the shipped table."""
    return {(pair.victim, pair.neighbour): pair.slowdown for pair in read_table(shipped_table("cpu")).ok_pairs}


def random_excess(names: list[str], measured: dict[tuple[str, str], float]) -> float:
    """The excess slowdown of all jobs under a random pairing, on average: each of the others is as likely a partner."""
    excess = [measured[victim, other] - 1 for victim in names for other in names if other != victim]
    return sum(excess) / (len(names) - 1)


def drawing(theme: Theme, snapshot: Snapshot, plan: Plan) -> str:
    """The picture in one theme: the matrix on the left, the devices on the right."""
    workload = {job.id: job.workload for job in snapshot.pending}
    partner = {workload[action.job_id]: workload[action.partner_id] for action in plan.actions}
    names, measured = list(workload.values()), slowdowns()
    chosen = sum(measured[victim, neighbour] - 1 for victim, neighbour in partner.items())
    matrix_width = LEFT + CELL * len(names)
    width, height = matrix_width + GAP + BOX_WIDTH + 8, TOP + CELL * len(names) + 12
    title = "Measured slowdown of each job beside each other job on one CPU core, and the pairing that is chosen"
    marks = [
        tag("title", title),
        _text(0, 16, "Slowdown of a job (row) beside a neighbour (column)", theme.text, weight=600),
        *_matrix(theme, names, partner, measured),
        _text(matrix_width + GAP, 16, "The pairing that interfere chooses", theme.text, weight=600),
        *_devices(theme, matrix_width + GAP, plan, workload),
    ]
    foot = TOP + len(names) // 2 * (BOX_HEIGHT + 14) + 14
    for line, text in enumerate(
        (
            f"Excess slowdown of all jobs: {chosen:.2f}",
            f"A random pairing, on average: {random_excess(names, measured):.2f}",
        )
    ):
        marks.append(_text(matrix_width + GAP, foot + 18 * line, text, theme.text if not line else theme.muted))
    box = f"0 0 {width} {height}"
    return tag("svg", *marks, xmlns="http://www.w3.org/2000/svg", viewBox=box, width=width, height=height, style=FONT)


def _matrix(
    theme: Theme, names: list[str], partner: dict[str, str], measured: dict[tuple[str, str], float]
) -> Iterator[Html]:
    for row, victim in enumerate(names):
        y = TOP + row * CELL
        yield _text(LEFT - 8, y + CELL / 2 + 4, victim, theme.text, anchor="end")
        x = LEFT + row * CELL + CELL / 2
        yield _text(x, TOP - 8, victim, theme.text, transform=f"rotate(-38 {x:g} {TOP - 8})")
        for column, neighbour in enumerate(names):
            share = min(max(math.log(measured[victim, neighbour]) / math.log(HIGHEST), 0.0), 1.0)
            colour = [round(low + share * (high - low)) for low, high in zip(theme.low, theme.high, strict=True)]
            x = LEFT + column * CELL
            fill = f"rgb({colour[0]},{colour[1]},{colour[2]})"
            yield tag("rect", x=x + 1, y=y + 1, width=CELL - 2, height=CELL - 2, rx=3, fill=fill)
            ink = "#1f2328" if sum(colour) > 380 else "#ffffff"
            slowdown = f"{measured[victim, neighbour]:.2f}"
            yield _text(x + CELL / 2, y + CELL / 2 + 4, slowdown, ink, anchor="middle")
    for victim, neighbour in partner.items():
        x, y = LEFT + names.index(neighbour) * CELL, TOP + names.index(victim) * CELL
        frame = {"fill": "none", "stroke": theme.frame, "stroke_width": 3}
        yield tag("rect", x=x + 1, y=y + 1, width=CELL - 2, height=CELL - 2, rx=3, **frame)


def _devices(theme: Theme, left: float, plan: Plan, workload: dict[str, str]) -> Iterator[Html]:
    """A frame for each device, with its two jobs and their expected slowdowns."""
    for place, device in enumerate(sorted({action.device_id for action in plan.actions})):
        y = TOP + place * (BOX_HEIGHT + 14) - 20
        frame = {"fill": "none", "stroke": theme.frame, "stroke_width": 2}
        yield tag("rect", x=left, y=y, width=BOX_WIDTH, height=BOX_HEIGHT, rx=8, **frame)
        yield _text(left + BOX_WIDTH - 10, y + 18, device, theme.muted, anchor="end")
        residents = [action for action in plan.actions if action.device_id == device]
        for line, action in enumerate(residents):
            words = f"{workload[action.job_id]}  {action.slowdown:.2f} ×"
            yield _text(left + 12, y + 25 + 22 * line, words, theme.text)


def _text(x: float, y: float, text: str, fill: str, *, anchor: str = "start", weight: int = 400, **more: str) -> Html:
    return tag("text", text, x=x, y=y, fill=fill, text_anchor=anchor, font_weight=weight, **more)


def pictures(address: str) -> dict[Path, str]:
    """The text of each file."""
    snapshot, plan = decision(address)
    return {
        ROOT / "docs" / f"pairing-{theme.name}.svg": drawing(theme, snapshot, plan) + "\n" for theme in (LIGHT, DARK)
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as work:
        server = start_server(Settings(model=SHIPPED_MODEL, work=Path(work), port=0))
        try:
            for path, text in pictures(server.address).items():
                path.write_text(text, encoding="utf-8")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
