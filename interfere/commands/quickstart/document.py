"""What a run of quickstart found, and the report of it: one document for the terminal and for the page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from interfere.commands.quickstart.pairings import (
    SLOWDOWN_CAP,
    Comparison,
    ComparisonRow,
    Direction,
    Evidence,
    Interval,
    Knowledge,
    Verdict,
    directions,
)
from interfere.commands.quickstart.stages import Decision
from interfere.dashboard.decision_parts import explanation_parts
from interfere.records import Explanation, PairMeasurement, PairStatus
from interfere.records.documents import from_document
from interfere.reports import document as report
from interfere.reports.document import Document, Estimate, Part, Section, Sentence, Tone
from interfere.reports.numbers import fixed, percent
from interfere.strict_json import json_value

SLOWDOWN, MEAN, COUNT = fixed(2, "×"), fixed(3, "×"), fixed(1)
TONES = {
    Verdict.BETTER: Tone.GOOD,
    Verdict.WORSE: Tone.BAD,
    Verdict.SAME: Tone.PLAIN,
    Verdict.CANNOT_TELL: Tone.UNSURE,
}
UNSEEN = {"pair": "unseen pairs", "job": "unseen jobs", "family": "unseen families", "held_out": "hidden pairs"}
WARN_STEAL = 0.03  # share of the core that other programs took; less is usual
MAX_NAMED = 6  # pairs in a sentence; the page lists all


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The results of a run of quickstart so far."""

    reason_not_measured: str  # empty where the jobs were measured on this machine
    workloads: tuple[str, ...]
    held_out: tuple[tuple[str, str], ...] = ()  # pairs that no model saw
    decision: Decision
    rows: tuple[ComparisonRow, ...]  # the chosen pairing first
    comparisons: tuple[Comparison, ...]
    knowledge: Knowledge
    training: Mapping[str, Any] = field(default_factory=dict)  # document of `interfere train`; empty: shipped model
    learning: Mapping[str, Any] = field(default_factory=dict)  # what the server learnt; empty: nothing was run again
    measured: tuple[PairMeasurement, ...] = ()  # here, in both measurements
    is_finished: bool = False
    seconds: float = 0.0

    @property
    def disturbed(self) -> dict[str, float]:
        """The share of the core that other programs took, by pair, largest first; small shares are left out."""
        shares: dict[str, float] = {}
        for row in self.measured:
            if row.steal_frac > WARN_STEAL:
                shares[pair_name(row)] = max(row.steal_frac, shares.get(pair_name(row), 0.0))
        return dict(sorted(shares.items(), key=lambda item: -item[1]))

    @property
    def failed(self) -> dict[str, str]:
        """The reason why a pair has no slowdown, by pair."""
        return {pair_name(row): row.reason for row in self.measured if row.status is not PairStatus.OK}

    def document(self) -> dict[str, Any]:
        """Return the results as the document that --json prints and report.json holds."""
        return {
            "measured_here": bool(self.measured),
            "why_not_measured": self.reason_not_measured,
            "device": "one CPU core, time-sliced",
            "workloads": self.workloads,
            "held_out_pairs": self.held_out,
            "decision": self.decision.facts,
            "explained": self.decision.explained,
            "pairings": [asdict(row) for row in self.rows],
            "comparisons": [asdict(each) | {"verdict": each.verdict, "text": each.text()} for each in self.comparisons],
            "online": self.learning,
            "training": self.training,
            "disturbed": [{"pair": pair, "share_of_core": share} for pair, share in self.disturbed.items()],
            "failed": [{"pair": pair, "reason": reason} for pair, reason in self.failed.items()],
            "seconds": self.seconds,
        }


def pair_name(row: PairMeasurement) -> str:
    """Return the name of a measurement's pair, the same for both directions."""
    return " beside ".join(sorted((row.victim, row.neighbour)))


def quickstart_document(findings: Findings) -> Document:
    """Return the report of a run of quickstart as a document."""
    return Document(
        "Which jobs should share a core?",
        (
            Sentence(_lead(findings), tone=Tone.LEAD),
            Section("The chosen pairing", tuple(_chosen(findings))),
            Section("Compared with other pairings", tuple(_comparison(findings))),
            *_model_sections(findings),
            *_disturbance_sections(findings),
            Section("Why this partner", tuple(_explanation(findings)), is_detail=True),
            Section("All slowdowns", (_heat_map(findings),), is_detail=True),
        ),
    )


def _lead(findings: Findings) -> str:
    n = len(findings.workloads)
    if not findings.is_finished:
        where = "Not measured here yet: every figure is from the table and the model that ship with interfere."
    elif findings.reason_not_measured:
        where = f"Not measured here ({findings.reason_not_measured}): every figure is from the table that ships."
    else:
        where = "Measured on this machine."
    return (
        f"{n} jobs share {n // 2} cores, two on each. A core is shared in time slices, as a GPU is. A slowdown of "
        f"1.5 × says that a step takes 1.5 times as long as alone. {where}"
    )


def _chosen(findings: Findings) -> Iterator[Part]:
    pairing = findings.decision.pairing
    yield report.Items(tuple(f"{a} shares a core with {b}" for a, b in pairing))
    knowledge = findings.knowledge
    run = Evidence.AGAIN if knowledge.again else Evidence.FIRST
    values, missing = knowledge.values(run), set(knowledge.stand_ins(directions(pairing), run))
    yield report.Lanes(
        title="Each job beside its partner: how long a step takes, alone = 1",
        axis=report.Axis(title="step time, alone = 1", form=SLOWDOWN, lines=((1.0, "alone"),)),
        series=(
            report.Series(name="measured", mark=report.Mark.BAR, colour=report.Colour.BLUE),
            report.Series(name="predicted", mark=report.Mark.BAR, colour=report.Colour.GREY, is_assumed=True),
        ),
        lanes=tuple(
            report.Lane(
                label=f"core {k}",
                boxes=tuple(
                    report.Box(
                        start=0.0, end=values[pair], series=int(pair in missing), text=f"{pair[0]} {values[pair]:.2f} ×"
                    )
                    for pair in (both, both[::-1])
                ),
            )
            for k, both in enumerate(pairing, start=1)
        ),
    )


def _comparison(findings: Findings) -> Iterator[Part]:
    for comparison in findings.comparisons:
        text = comparison.text()
        yield Sentence(f"{text[0].upper()}{text[1:]}.", tone=TONES[comparison.verdict])
    yield report.Table(
        title="Mean slowdown of all jobs, with 95 % intervals",
        columns=(
            report.Column("pairing"),
            report.Column("predicted", MEAN),
            report.Column("measured", MEAN),
            report.Column("worst job", SLOWDOWN),
            report.Column(f"pairs past {SLOWDOWN_CAP} ×", COUNT),
            report.Column("predicted worst job", SLOWDOWN, is_detail=True),
            report.Column("slowdowns measured", is_detail=True),
        ),
        rows=tuple(
            (
                row.name,
                row.predicted.mean_slowdown.value,
                _estimate(row.measured.mean_slowdown),
                row.measured.worst_victim,
                row.measured.past_cap,
                row.predicted.worst_victim,
                f"{row.slowdowns - len(row.stand_ins)} of {row.slowdowns}",
            )
            for row in findings.rows
        ),
    )
    if findings.training.get("with_measured", True):
        text = "A measured pair is predicted by its measurement, a hidden one by the model."
    else:
        text = "Predictions rest on the table that ships with interfere."
    yield Sentence(text, tone=Tone.NOTE)
    yield from _stand_ins(findings.rows)


def _stand_ins(rows: Sequence[ComparisonRow]) -> Iterator[Part]:
    """Yield sentences on how many slowdowns were measured and which were not, in all pairings and in the pairings run
    again."""
    again = [row for row in rows if row.name.endswith(("run again", "run"))]
    for when, counted in (("", rows[2:3]), (" when run again", again)):
        every = sum(row.slowdowns for row in counted)
        missing = list(dict.fromkeys(pair for row in counted for pair in row.stand_ins))
        if missing:
            measured = every - sum(len(row.stand_ins) for row in counted)
            yield Sentence(
                f"{measured} of {every} slowdowns were measured{when}. In place of the others stand predictions, with "
                f"their intervals: {_named([f'{a} beside {b}' for a, b in missing])}."
            )


def _named(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - MAX_NAMED} more" if len(texts) > MAX_NAMED else ""
    return ", ".join(texts[:MAX_NAMED]) + more


def _model_sections(findings: Findings) -> Iterator[Part]:
    if not findings.training:
        return
    training, learning = findings.training, findings.learning
    model, version = training["model"], findings.decision.model_version
    errors = {split: by_model[model] for split, by_model in training["scores"].items() if model in by_model}
    unseen = ", ".join(
        f"{UNSEEN.get(split, split)} {error['mae']:.3f} ({error['mape']:.1f} %)" for split, error in errors.items()
    )
    # The first champion of a workspace is served by default; a later one waits for its promotion.
    later = "" if training["is_champion"] else "; an earlier one is served until: interfere promote"
    parts: list[Part] = [
        Sentence(f"champion: {model}, version {version}; error of speed (of slowdown) on {unseen}{later}"),
        report.Table(
            title="Error of speed of every predictor",
            columns=(
                report.Column("predictor"),
                *(report.Column(UNSEEN.get(split, split), fixed(3)) for split in errors),
            ),
            rows=tuple(
                (name, *(training["scores"][split].get(name, {}).get("mae") for split in errors))
                for name in next(iter(training["scores"].values()), {})
            ),
        ),
    ]
    if learning:
        parts.append(Sentence(_online(learning)))
    yield Section("The model", tuple(parts))


def _online(learning: Mapping[str, Any]) -> str:
    counts = f"online: {learning['applied']} of {learning['observations']} observations applied"
    if not learning["observations"]:
        return f"{counts}: none of the chosen pairs could be measured again, so there was nothing to learn from"
    before, after = learning["error_before"], learning["error_after"]
    return f"{counts}; error on the chosen pairs {before:.1%} before, {after:.1%} after"


def _disturbance_sections(findings: Findings) -> Iterator[Part]:
    """Yield a section on the measurements that other programs disturbed or made fail."""
    if not findings.measured:
        return
    every = len({pair_name(row) for row in findings.measured})
    shares, failures = findings.disturbed, findings.failed
    parts: list[Part] = []
    if shares:
        named = _named([f"{pair} ({share:.0%})" for pair, share in shares.items()])
        parts.append(
            Sentence(
                f"Other programs took more than {100 * WARN_STEAL:.0f} % of the core beside {len(shares)} of {every} "
                f"pairs, which widens the intervals of these: {named}."
            )
        )
        columns = (report.Column("pair"), report.Column("share", percent()))
        table = report.Table(
            title="Share of the core that other programs took", columns=columns, rows=tuple(shares.items())
        )
        parts.append(report.Folded("All of them", (table,)))
    if failures:
        named = _named([f"{pair} ({reason})" for pair, reason in failures.items()])
        parts.append(Sentence(f"{len(failures)} of {every} pairs could not be measured: {named}."))
    yield Section("Other programs", tuple(parts) or (Sentence("No measurement was disturbed."),))


def _explanation(findings: Findings) -> Iterator[Part]:
    """Yield the reason for the first job's partner and the alternatives, as `interfere explain` prints them."""
    yield from explanation_parts(from_document(Explanation, json_value(dict(findings.decision.explained))))
    yield Sentence(("The same from the command line: ", report.Code("interfere explain DECISION JOB")), tone=Tone.NOTE)


def _heat_map(findings: Findings) -> report.HeatMap:
    names, knowledge = findings.workloads, findings.knowledge
    values = knowledge.values(Evidence.FIRST)
    missing = set(knowledge.stand_ins(values, Evidence.FIRST))

    def cell(pair: Direction) -> report.HeatCell:
        if pair not in values:
            return report.HeatCell(
                float("nan"), f"{pair[0]} beside a copy of itself is not compared", report.Absence.MISSING
            )
        how = "predicted" if pair in missing else "measured"
        return report.HeatCell(values[pair], f"{pair[0]} beside {pair[1]}: {values[pair]:.2f} ×, {how}")

    return report.HeatMap(
        title="Slowdown of each job (row) beside each other (column)",
        row_axis="slowed down",
        column_axis="beside",
        unit="times alone",
        rows=names,
        columns=names,
        cells={(a, b): cell((a, b)) for a in names for b in names},
    )


def _estimate(interval: Interval) -> Estimate:
    return Estimate(interval.value, interval.lower, interval.upper)
