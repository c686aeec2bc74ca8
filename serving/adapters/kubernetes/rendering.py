"""Rounds and reports as documents and as text."""

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interfere.serving.adapters.kubernetes.advisor import Round
    from interfere.serving.adapters.kubernetes.observations.journal import JournalReport


MOST_COMPANIES = 20  # rows of a report


def document(done: "Round") -> dict[str, Any]:
    """A round as a document."""
    return {
        "at_s": done.at_s,
        "decisions": [
            {
                "pod": each.pod.key,
                "workload": each.pod.workload,
                "decision": each.kind,
                "device": each.device,
                "partner": _pod_name(each.partner),
                "slowdown": each.slowdown,
                "reason": each.reason,
                "decision_id": each.decision_id,
            }
            for each in done.decisions
        ],
        "changed": [
            {"pod": change.pod.key, "writes": [write.kind.value for write in change.writes]} for change in done.changes
        ],
        "rejected": [{"pod": each.change.pod.key, "message": each.message} for each in done.rejected],
        "left_to_kubernetes": dict(done.left_to_kubernetes),
        "observations": dict(done.observations),
    }


def text(done: "Round") -> str:
    """One line per changed pod."""
    changed = {change.pod.id for change in done.changes}
    lines = [
        f"{each.pod.key} {each.pod.workload}: {each.kind.replace('_', ' ')} {each.device} {each.reason}"
        for each in done.decisions
        if each.pod.id in changed
    ]
    lines += [f"{each.change.pod.key}: {each.message}" for each in done.rejected]
    return "\n".join(lines) or "nothing to do"


def report_document(summary: "JournalReport") -> dict[str, Any]:
    """The report as a document."""
    return asdict(summary)


def report_text(summary: "JournalReport") -> str:
    """The report as lines."""
    lines = [
        f"{summary.days:.1f} days, {summary.decided} pods with a decision",
        f"{summary.bound} of them ran, {summary.as_decided} on the device that was named",
    ]
    if summary.compared:
        lines.append(
            f"{summary.compared} times a pod ran beside others with measured steps: median slowdown predicted "
            f"{summary.median_predicted:.2f}, measured {summary.median_measured:.2f}, "
            f"median error {summary.median_error:.0%}"
        )
    elif summary.companies:
        lines.append("pods ran beside others, but no slowdown is both predicted and measured: see the columns below")
    else:
        lines.append("no pod ran beside others with measured steps: nothing to compare yet")
    if summary.companies:
        lines += ["", f"{'workload':24} {'beside':32} {'device':14} {'pods':>5} {'predicted':>9} {'measured':>9}"]
    for each in summary.companies[:MOST_COMPANIES]:
        lines.append(
            f"{each.workload:24} {' + '.join(each.company):32} {each.device_type:14} {each.pods:5} "
            f"{_slowdown(each.predicted):>9} {_slowdown(each.measured):>9}"
        )
    if len(summary.companies) > MOST_COMPANIES:
        lines.append(f"... and {len(summary.companies) - MOST_COMPANIES} more: --json")
    return "\n".join(lines)


def _slowdown(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:.2f}"


def _pod_name(job_id: str) -> str:
    """Namespace and name of a job's id."""
    return job_id.rpartition("/")[0]
