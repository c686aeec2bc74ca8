"""Sentences of an audit that its text and its page share."""

from datetime import UTC, datetime

from interfere.monitoring.audit.advice import NextPair, Reason, Repairing
from interfere.monitoring.audit.audit import AuditReport
from interfere.monitoring.audit.report import Origin, PairCost, Side, WorkloadCost
from interfere.monitoring.audit.slowdowns import Baseline
from interfere.monitoring.reading import NotMeasured
from interfere.reports.numbers import count_noun, format_slowdown
from interfere.reports.numbers import format_hours as hours

COVERAGE_CLAIM = (
    "Intervals are meant to hold the true slowdown 95 times in 100. On simulated days with planted slowdowns, "
    "restarts, gaps and renamed pods at least 9 in 10 did; your site may have causes that no simulation has."
)
BASELINE_NOTE = (
    "A slowdown compares a workload's rate in company with its rate alone on the same device type: of the same jobs "
    "where they were seen alone, else of other jobs of that workload, which widens the interval."
)
OTHER_CAUSES = (
    "Alone means alone on the GPU: CPUs, disks and networks may have been shared, and counters of requests follow the "
    "load. A service whose requests all get answered in time shows no slowdown here, though its latency may suffer."
)
REASONS = {
    Reason.NEVER_ALONE: "measure it with {alone} alone as well: without that nobody knows what sharing costs it",
    Reason.NEVER_TOGETHER: "never seen together; it may be better than what is paired now",
    Reason.UNCERTAIN: "the width of its interval is worth most, for the hours it runs",
}
NOT_MEASURED = {
    NotMeasured.NO_COUNTER: "no counter of steps",
    NotMeasured.STOOD_STILL: "made no step",
    NotMeasured.TOO_FEW_SAMPLES: "too few samples of the counter",
    NotMeasured.NEIGHBOUR_STOOD_STILL: "beside a job that made no step",
    NotMeasured.SEVERAL_DEVICES: "with a job on several devices",
}


def span(report: AuditReport) -> str:
    """The time that was read."""
    first, last = (
        datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M") for at_s in (report.start_s, report.end_s)
    )
    return f"{first} to {last} UTC"


def scope(report: AuditReport) -> str:
    """Return a sentence on the amount of data that the audit has read."""
    share = report.shared_hours / report.busy_hours if report.busy_hours else 0.0
    return (
        f"{count_noun(report.devices, 'device')}, {count_noun(report.jobs, 'job')} of "
        f"{count_noun(len({each.workload for each in report.workloads}), 'workload')}; "
        f"{hours(report.busy_hours)} of devices in use, {hours(report.shared_hours)} of them shared ({share:.0%})"
    )


def headline(report: AuditReport) -> str:
    """The one sentence to pass on."""
    pair = next((pair for pair in report.pairs if pair.worst_side.origin is Origin.MEASURED), None)
    if report.shared_hours == 0:
        return "No device was shared in this time, so sharing cost nothing."
    if pair is None:
        return "Which jobs shared a device is known, but not what it cost them: see what to do below."
    worst = pair.worst_side
    text = f"{worst.victim} ran {format_slowdown(worst.slowdown)} times slower beside {worst.company[0]}"
    return f"{text} ({interval(worst)}), {hours(pair.device_hours)} together: the worst pair of this site."


def total(report: AuditReport) -> str:
    """Return a sentence with the total cost of sharing."""
    low, high = sum(each.lost_lower for each in report.workloads), sum(each.lost_upper for each in report.workloads)
    unknown = sum(each.unknown_hours for each in report.workloads)
    text = f"Sharing cost {hours(report.lost_hours)} of jobs' progress, between {hours(low)} and {hours(high)}."
    return text + (f" For another {hours(unknown)} of jobs in company the cost is unknown." if unknown > 0 else "")


def interval(side: Side) -> str:
    """The interval of a side's slowdown; that of a prediction says so."""
    if side.origin is Origin.UNKNOWN:
        return "unknown"
    text = f"{format_slowdown(side.lower)} to {format_slowdown(side.upper)}"
    return text if side.origin is Origin.MEASURED else f"{text}, predicted"


def evidence(side: Side) -> str:
    """Return the evidence for a workload's slowdown, in words."""
    if side.origin is Origin.UNKNOWN:
        return "never seen alone, or no counter"
    if side.origin is Origin.PREDICTED:
        return "predicted from other pairs"
    where = "same jobs" if side.baseline is Baseline.SAME_JOBS else "other jobs"
    return f"{count_noun(side.episodes, 'time')}; alone: {where}"


def pair_text(names: tuple[str, str]) -> str:
    """Return the names of two workloads, joined by a plus."""
    return f"{names[0]} + {names[1]}"


def repairing_text(each: Repairing) -> str:
    """Return a sentence with the estimated cost if the same jobs had been paired differently."""
    saved, margin = each.lost_before - each.lost_after, 1.96 * each.saved_sd
    return (
        f"On {each.device_type}, paired otherwise, the same jobs would have lost {hours(each.lost_after)} instead of "
        f"{hours(each.lost_before)} of progress in {hours(each.device_hours)} of pairs: {hours(saved)} saved, "
        f"± {hours(margin)}. At most that: it takes for granted that any two of them could have run at the same time."
    )


def separate_text(pair: PairCost) -> str:
    """Return a sentence on why a pair should not share."""
    return (
        f"{pair_text(pair.names)}: together they made {pair.joint_throughput:.2f} of the progress of one job alone, so "
        f"one after the other is faster, on the same devices ({hours(pair.device_hours)} together)."
    )


def next_pair_text(each: NextPair) -> str:
    """A pair to measure, and why."""
    reason = REASONS[each.reason].format(alone=" and ".join(each.never_alone))
    if each.never_alone and each.reason is Reason.NEVER_TOGETHER:
        reason += f"; run {' and '.join(each.never_alone)} alone as well"
    return f"{pair_text(each.names)} on {each.device_type}: {reason} ({hours(each.hours_at_stake)} at stake)"


def load_note(each: WorkloadCost) -> str:
    """Return a note that input or load, rather than its neighbours, changes a workload's rate."""
    return (
        f"{each.workload}: its rate varies by {each.noise_sd:.0%} from one time to the next in the same company, so "
        "load or input confounds what sharing cost it."
    )


def notes(report: AuditReport) -> list[str]:
    """Return the warnings that a reader needs before relying on the report, the most specific first."""
    lines = [report.hint] if report.hint else []
    if not report.progress:
        lines.append("No counter of steps was named (--progress), so nothing is known of what sharing cost.")
    lines += [load_note(each) for each in report.workloads if each.moved_by_load]
    never = sorted({each.workload for each in report.workloads if each.alone_hours == 0 and each.shared_hours > 0})
    if never:
        lines.append(f"Never seen alone, so without a baseline: {', '.join(never)}. What is said of them is predicted.")
    if report.not_measured:
        counts = ", ".join(f"{count} {NOT_MEASURED[reason]}" for reason, count in report.not_measured)
        lines.append(f"Sides of windows without a rate, of {report.windows} windows: {counts}.")
    lines += [f"Left out: {count} {what}." for what, count in report.left_out]
    return [*lines, BASELINE_NOTE, COVERAGE_CLAIM, OTHER_CAUSES]
