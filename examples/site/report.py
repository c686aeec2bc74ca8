"""What the runs of the site say: completions by arm, predicted beside measured slowdowns, and the replay."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from examples.site.arms import PREFIX, Arm
from examples.site.run_times import median_turnover_s
from examples.site.stream import StreamSettings
from interfere.reports.document import Column, Document, Estimate, Part, Section, Sentence, Table, Tone
from interfere.reports.numbers import count_noun, fixed, percent

Run = dict[str, Any]
CONFIDENCE = 0.95
SEATS = 2  # of a device that is shared
MOST_TAKEN = 0.05  # of the devices by other programs: their time is subtracted, but caches and Slurm suffer too


def site_report(
    runs: Sequence[Run],
    replayed: Mapping[str, Mapping[Arm, tuple[float, ...]]],
    settings: StreamSettings,
    *,
    quick: bool,
) -> Document:
    """Return the report of all runs."""
    repetitions = sorted({run["repetition"] for run in runs})
    source = f"the trace {settings.trace.name}" if settings.trace else "no trace: gaps and run times are drawn"
    lead = (
        f"{count_noun(len(repetitions), 'repetition')} of {count_noun(settings.jobs, 'job')} of 3 to "
        f"{settings.longest_s:g} s at an offered load of {settings.load:g}; {source}. Two cores are two GPUs."
    )
    parts: list[Part] = [Sentence(lead, tone=Tone.LEAD)]
    taken = sum(run["taken_s"] for run in runs) / sum(run["wall_s"] * run["cores"] for run in runs)
    if taken > MOST_TAKEN:
        text = f"Other programs took {taken:.0%} of the devices' time; above {MOST_TAKEN:.0%} no time here is a result."
        parts.append(Sentence(text, tone=Tone.BAD))
    if quick or len(repetitions) < 2:
        parts.append(Sentence("One repetition has no interval: this run shows that the site works, and no more."))
    by_arm = {arm: [run for run in runs if run["arm"] == arm] for arm in Arm}
    by_arm = {arm: sorted(own, key=lambda run: run["repetition"]) for arm, own in by_arm.items() if own}
    sections = (_completions(by_arm), _predictions(by_arm), _replay(by_arm, replayed), _conditions(by_arm))
    return Document("A site in a box", (*parts, *sections))


# --- completions ------------------------------------------------------------------------------------------------------


def paired_interval(own: Sequence[float], others: Sequence[float]) -> Estimate:
    """Return the mean of the paired differences relative to the mean of `others`, with its interval by Student's t."""
    differences = np.array(own) - np.array(others)
    base, mean = float(np.mean(others)), float(differences.mean())
    if len(differences) < 2:
        return Estimate(mean / base)
    from scipy import stats

    quantile = float(stats.t.ppf(0.5 + CONFIDENCE / 2.0, len(differences) - 1))
    half = quantile * float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return Estimate(mean / base, (mean - half) / base, (mean + half) / base)


def mean_completions(runs: Sequence[Run]) -> list[float]:
    """Return the mean completion of the jobs of each run, in seconds of the site's clock."""
    return [statistics.fmean(job["completion_s"] for job in run["jobs"]) for run in runs]


def _completions(by_arm: dict[Arm, list[Run]]) -> Section:
    note = (
        "Differences of means, paired by repetition, with 95 % intervals; less is better. Times on the site's clock. "
        "The server is told run times to .1 s; Slurm as time limits, which count in whole minutes: all are one minute."
    )
    tables = [_completion_table("All streams", by_arm)]
    later = {arm: [run for run in runs if run["repetition"] > 0] for arm, runs in by_arm.items()}
    if all(later.values()):
        tables.append(_completion_table("After the first stream, from which the server learns the workloads", later))
    return Section("What happened", (Sentence(note), *tables))


def _completion_table(title: str, by_arm: dict[Arm, list[Run]]) -> Table:
    rows = []
    for arm, runs in by_arm.items():
        jobs = [job for run in runs for job in run["jobs"]]
        ratios = [job["completion_s"] / job["nominal_s"] for job in jobs]
        rows.append(
            (
                arm.value,
                statistics.fmean(mean_completions(runs)),
                _against(arm, Arm.SLURM, by_arm),
                _against(arm, Arm.SHARING, by_arm),
                _against(arm, Arm.GREEDY, by_arm),
                float(np.quantile([job["completion_s"] for job in jobs], 0.95)),
                statistics.fmean(job["wait_s"] for job in jobs),
                statistics.fmean(ratios),
            )
        )
    seconds, share = fixed(1, unit="s"), percent(1, sign=True)
    columns = (
        Column("arm"),
        Column("mean completion", seconds),
        Column("against slurm", share),
        Column("against sharing", share),
        Column("against greedy", share),
        Column("95 % completion", seconds),
        Column("mean wait", seconds),
        Column("completion ÷ alone", fixed(2)),
    )
    return Table(title=title, columns=columns, rows=tuple(rows))


def _against(arm: Arm, other: Arm, by_arm: dict[Arm, list[Run]]) -> Estimate | None:
    """Return the paired difference to another arm over the repetitions that both have."""
    common = {run["repetition"] for run in by_arm[arm]} & {run["repetition"] for run in by_arm.get(other, ())}
    if arm is other or not common:
        return None
    own, others = ([run for run in by_arm[each] if run["repetition"] in common] for each in (arm, other))
    return paired_interval(mean_completions(own), mean_completions(others))


# --- predictions ------------------------------------------------------------------------------------------------------


class StartedPair(NamedTuple):
    """A job that was started beside another one: its slowdown as predicted then, and as measured after."""

    place: float  # of the job in the stream: 0 the first, 1 the last
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """The relative error of the prediction."""
        return abs(self.predicted - self.measured) / self.measured


def started_pairs(run: Run) -> list[StartedPair]:
    """Return the pairs that a run started by a prediction, and that stepped together for a second or more."""
    measured = {(each["job"], each["beside"]): each["slowdown"] for each in run["meetings"]}
    place = {job["id"]: job["index"] / max(1, len(run["jobs"]) - 1) for job in run["jobs"]}
    return [
        StartedPair(place[job_id], told["slowdown"], measured[job_id, told["partner"]])
        for job_id, told in run["predictions"].items()
        if (job_id, told["partner"]) in measured and math.isfinite(told["slowdown"] or math.nan)
    ]


def _predictions(by_arm: dict[Arm, list[Run]]) -> Section:
    rows = []
    for arm, runs in by_arm.items():
        if not arm.is_advised:
            continue
        pairs = [(run["repetition"], pair) for run in runs for pair in started_pairs(run)]
        parts = [
            [pair.error for repetition, pair in pairs if repetition == 0 and pair.place < 0.5],
            [pair.error for repetition, pair in pairs if repetition == 0 and pair.place >= 0.5],
            [pair.error for repetition, pair in pairs if repetition > 0],
        ]
        medians = [statistics.median(errors) if errors else math.nan for errors in parts]
        told = float(sum(len(run["predictions"]) for run in runs))
        measured = statistics.median(pair.measured for _, pair in pairs) if pairs else math.nan
        rows.append((arm.value, told, float(len(pairs)), measured, *medians))
    whole = fixed(0)
    columns = (
        Column("arm"),
        Column("started beside another", whole),
        Column("of these measured", whole),
        Column("median slowdown measured", fixed(2)),
        Column("median error, first half of the first stream", percent(1)),
        Column("second half", percent(1)),
        Column("later streams", percent(1)),
    )
    note = (
        "The server begins with a model that has seen neither the device type nor the workloads (named "
        f"{PREFIX}...), learns from the marks of the jobs, and keeps that for the next stream. Measured: step times on "
        "the device's clock ÷ alone."
    )
    return Section("Predicted and measured", (Sentence(note), Table(title="Pairs", columns=columns, rows=tuple(rows))))


# --- the replay, and the conditions -----------------------------------------------------------------------------------


def _replay(by_arm: dict[Arm, list[Run]], replayed: Mapping[str, Mapping[Arm, tuple[float, ...]]]) -> Section:
    """`replayed`: mean completions of each repetition, by where the slowdowns are from and by arm."""
    rows, streams = [], []
    for arm, runs in by_arm.items():
        happened = mean_completions(runs)
        predicted = [means[arm] for means in replayed.values()]
        means = [statistics.fmean(values) for values in (happened, *predicted)]
        rows.append((arm.value, means[0], *(x for each in means[1:] for x in (each, each / means[0] - 1.0))))
        for k, run in enumerate(runs):
            values = [each[k] for each in predicted]
            differences = (x for each in values for x in (each, each / happened[k] - 1.0))
            streams.append((arm.value, float(run["repetition"]), happened[k], *differences))
    columns = [Column("arm"), Column("mean completion", fixed(1, unit="s"))]
    for name in replayed:
        columns += [Column(f"replayed {name}", fixed(1, unit="s")), Column(f"difference {name}", percent(1, sign=True))]
    note = (
        "The same streams in the simulator. Without advice the queue is first come first served, with time limits in "
        "whole minutes. The advised arms are the adapter, in rounds of a second, and a policy server that knows "
        "nothing at first. How long programs load and end is measured in the other streams, under Slurm alone."
    )
    by_stream = Table(
        title="Replay of each stream",
        columns=(columns[0], Column("stream", fixed(0)), *columns[1:]),
        rows=tuple(streams),
    )
    return Section(
        "Replayed", (Sentence(note), Table(title="Replay", columns=tuple(columns), rows=tuple(rows)), by_stream)
    )


def _conditions(by_arm: dict[Arm, list[Run]]) -> Section:
    rows = []
    for arm, runs in by_arm.items():
        core_s = sum(run["wall_s"] * run["cores"] for run in runs)
        rows.append(
            (
                arm.value,
                sum(run["job_s"] for run in runs) / core_s,
                sum(run["control_s"] for run in runs) / core_s,
                sum(run["others_s"] for run in runs) / core_s,
                sum(run["taken_s"] for run in runs) / core_s,
                sum(run["wall_s"] for run in runs),
                float(sum(job["restarts"] for run in runs for job in run["jobs"])),
                median_turnover_s(runs, seats=1 if arm is Arm.SLURM else SEATS),
            )
        )
    share = percent(1)
    columns = (
        Column("arm"),
        Column("jobs", share),
        Column("control plane", share),
        Column("other programs", share),
        Column("taken from jobs", share),
        Column("wall time", fixed(0, unit="s")),
        Column("restarts", fixed(0)),
        Column("turnover", fixed(2, unit="s")),
    )
    note = (
        "Shares of the time of both cores. What other programs took from jobs that were ready is subtracted from all "
        "times; what the control plane took (Slurm, server, adapter, the program that submits) counts against its arm. "
        "Turnover: from the last step of a job to the first line of the next program in its place, median."
    )
    return Section("Conditions", (Sentence(note), Table(title="Cores", columns=columns, rows=tuple(rows))))
