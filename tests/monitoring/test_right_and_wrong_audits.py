"""Audits of the wrong thing never end with status 0 and a cost; audits of the right thing hold the planted lost hours.

Each case changes what a site's Prometheus holds, or how the command is called, and runs the command.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from interfere.commands.monitoring.audit import app
from interfere.monitoring.preflight import PreflightError, check_rates, check_slowdowns
from interfere.monitoring.samples import SampleBlock, SampleSeries
from interfere.monitoring.settings import MonitoringSettings
from tests.monitoring.saved_site import write_answers
from tests.monitoring.simulated_site import SimulatedSite, inside, planted_slowdown

STEPS = "train_steps_total"
Change = Callable[[SampleBlock], SampleBlock]


@pytest.fixture(scope="module")
def site() -> SimulatedSite:
    return SimulatedSite(seed=3, hours=8, devices=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """What the command said."""

    status: int
    told: str
    document: dict[str, object]


def audited(block: SampleBlock, folder: Path, options: tuple[str, ...]) -> Audited:
    """Run the command on samples saved as files."""
    answers = write_answers(folder / "answers", block)
    words = ["--from-files", str(answers), "--out", str(folder / "page.html"), "--json", *options]
    if "--progress" not in options:
        words += ["--progress", STEPS]
    result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        status = getattr(result.exception, "exit_status", 1)
        assert hasattr(result.exception, "remedy"), result.exception
        return Audited(status=status, told=str(result.exception), document={})
    document = json.loads(result.stdout) if result.exit_code == 0 else {}
    return Audited(status=result.exit_code, told=result.stderr, document=document)


def labels_of(each: SampleSeries, **more: str | None) -> SampleSeries:
    """A series with other labels; None takes one off."""
    labels = {**each.labels, **more}
    return replace(each, labels={name: value for name, value in labels.items() if value is not None})


def on_device(change: Callable[[SampleSeries], SampleSeries]) -> Change:
    return lambda block: replace(block, device=tuple(map(change, block.device)))


def on_counter(change: Callable[[SampleSeries], SampleSeries]) -> Change:
    return lambda block: replace(block, progress=tuple(map(change, block.progress)))


def values(of: Callable[[SampleSeries], Iterable[float]]) -> Change:
    return on_counter(lambda each: replace(each, values=np.asarray(list(of(each)), dtype=np.float64)))


def renamed(old: str, new: str) -> Callable[[SampleSeries], SampleSeries]:
    return lambda each: labels_of(each, **{old: None, new: each.labels[old]}) if old in each.labels else each


def named(each: SampleSeries, name: str) -> SampleSeries:
    return replace(labels_of(each, __name__=name), name=name)


RNG = np.random.default_rng(0)


def uniform(each: SampleSeries) -> Iterable[float]:
    return RNG.uniform(0, 100, len(each.values))


def increments(each: SampleSeries) -> Iterable[float]:
    return np.diff(each.values, prepend=0.0)


def step_times(each: SampleSeries) -> Iterable[float]:
    """Seconds a step since the sample before: what a gauge of step time shows."""
    rates = np.diff(each.values) / np.diff(each.times_s) if len(each.values) > 1 else np.zeros(0)
    times_s = 1 / np.where(rates > 0, rates, np.nan)
    return np.nan_to_num(
        np.append(times_s, np.nan), nan=float(np.nanmedian(times_s)) if np.isfinite(times_s).any() else 1.0
    )


def expression(change: Change) -> Change:
    """The counters become the nameless answer of an expression."""
    return lambda block: on_counter(lambda each: replace(labels_of(each, __name__=None), name=""))(change(block))


def two_clusters(*, counter_tells: bool) -> Change:
    """Two clusters with equal pods and devices of their own."""
    label = "cluster" if counter_tells else "team"

    def of(block: SampleBlock) -> SampleBlock:
        devices, counters = [], []
        for name in "ab":
            devices += [labels_of(each, cluster=name, UUID=name + each.labels["UUID"]) for each in block.device]
            counters += [labels_of(each, **{label: name}) for each in block.progress]
        return SampleBlock(device=tuple(devices), progress=tuple(counters))

    return of


def same(block: SampleBlock) -> SampleBlock:
    return block


def only_idle(block: SampleBlock) -> SampleBlock:
    return replace(block, device=tuple(each for each in block.device if "pod" not in each.labels))


def other_pods(each: SampleSeries) -> SampleSeries:
    return labels_of(each, pod=f"web-{each.labels['pod']}")


def gateway(each: SampleSeries) -> SampleSeries:
    return labels_of(each, pod="pushgateway-0", worker=each.labels["pod"])


def milliseconds(block: SampleBlock) -> SampleBlock:
    def of(each: SampleSeries) -> SampleSeries:
        return replace(each, times_s=1000 * each.times_s)

    return SampleBlock(device=tuple(map(of, block.device)), progress=tuple(map(of, block.progress)))


def utilisation(each: SampleSeries) -> SampleSeries:
    return named(each, "DCGM_FI_DEV_GPU_UTIL")


def of_the_whole_site(block: SampleBlock) -> SampleBlock:
    """Every job shows the steps of all jobs."""
    every = np.concatenate([each.times_s for each in block.progress])
    grid_s, total = np.arange(every.min(), every.max(), 5.0), 0.0
    for each in block.progress:
        if len(each.values):
            total = total + np.interp(grid_s, each.times_s, np.maximum.accumulate(each.values), left=0.0)
    return values(lambda each: np.floor(np.interp(each.times_s, grid_s, total)))(block)


def busy_time(each: SampleSeries) -> Iterable[float]:
    """Seconds for which a job was busy, of a name that does not tell."""
    return np.cumsum(RNG.uniform(0.9, 1.0, len(each.times_s)) * np.diff(each.times_s, prepend=each.times_s[:1]))


PROCESSOR_TIME = "container_cpu_usage_seconds_total"
STEP_TIME = "avg by (namespace, pod) (step_time_s)"
RATE = "sum by (namespace, pod) (rate(train_steps_total[1m]))"
WRONG: dict[str, tuple[Change, tuple[str, ...]]] = {
    "a gauge": (values(uniform), ()),
    "a queue's length": (values(lambda each: RNG.poisson(0.7, len(each.values))), ()),
    "steps since the last scrape": (values(increments), ()),
    "a constant": (values(lambda each: np.full(len(each.values), 7.0)), ()),
    "a clock in seconds": (values(lambda each: each.times_s - each.times_s[:1]), ()),
    "a clock in milliseconds": (values(lambda each: 1e3 * (each.times_s - each.times_s[:1])), ()),
    "the unix time": (values(lambda each: each.times_s), ()),
    "time in which a job was busy": (values(busy_time), ()),
    "a counter of the whole site": (of_the_whole_site, ()),
    "scrapes of the counter": (values(lambda each: np.arange(len(each.values))), ()),
    "times in milliseconds": (milliseconds, ()),
    "a mistyped counter": (same, ("--progress", "train_step_total")),
    "a renamed counter": (on_counter(lambda each: named(each, "steps_total")), ()),
    "a device's utilisation": (on_counter(utilisation), ("--progress", "DCGM_FI_DEV_GPU_UTIL")),
    "energy": (on_counter(lambda each: named(each, "gpu_joules_total")), ("--progress", "gpu_joules_total")),
    "processor time": (on_counter(lambda each: named(each, PROCESSOR_TIME)), ("--progress", PROCESSOR_TIME)),
    "a mistyped label of workloads": (same, ("--by", "workloda")),
    "a label that only counters have": (same, ("--by", "app")),
    "a mistyped label of the join": (same, ("--same-label", "pdo=pod")),
    "a join of every job of a namespace": (same, ("--same-label", "namespace=namespace")),
    "a join of pods with namespaces": (same, ("--same-label", "pod=namespace")),
    "counters of other pods": (on_counter(other_pods), ()),
    "counters of another namespace": (on_counter(lambda each: labels_of(each, namespace="dev")), ()),
    "counters behind a push gateway": (on_counter(gateway), ()),
    "counters of two clusters that do not tell which": (two_clusters(counter_tells=False), ()),
    "devices without pods": (on_device(lambda each: labels_of(each, pod=None, namespace=None)), ()),
    "devices under the exporter's own pod": (on_device(lambda each: labels_of(each, pod="dcgm-exporter-x2k4q")), ()),
    "devices without an id": (on_device(lambda each: labels_of(each, UUID=None)), ()),
    "devices without a type": (on_device(lambda each: labels_of(each, modelName=None)), ()),
    "an idle site": (only_idle, ()),
    "a time before anything was recorded": (same, ("--until", "2020-01-01")),
    "a counter as an expression": (expression(same), ("--progress", "sum by (namespace, pod) (train_steps_total)")),
    "a time per step as an expression": (expression(values(step_times)), ("--progress", STEP_TIME)),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_audit_does_not_end_with_status_0_and_a_cost(site: SimulatedSite, tmp_path: Path, case: str) -> None:
    change, options = WRONG[case]
    got = audited(change(site.block()), tmp_path, options)
    print(f"{case}: {got.status} {got.told[:150]}")
    assert got.status != 0, got.document.get("lost_hours")
    assert not (tmp_path / "page.html").exists()


def clusters_without_a_label(block: SampleBlock) -> SampleBlock:
    device = [labels_of(each, UUID=name + each.labels["UUID"]) for name in "ab" for each in block.device]
    counters = [labels_of(each, instance=name) for name in "ab" for each in block.progress]
    return SampleBlock(device=tuple(device), progress=tuple(counters))


def labels_of_later_pods(block: SampleBlock) -> SampleBlock:
    labels = [each.labels for each in block.progress]
    mixed = zip(block.progress, labels[7:] + labels[:7], strict=True)
    return replace(block, progress=tuple(replace(each, labels=other) for each, other in mixed))


NO_COST: dict[str, Change] = {
    "two clusters that no label tells apart": clusters_without_a_label,
    "counters under the names of other jobs": labels_of_later_pods,
    "no counter named": same,
}


@pytest.mark.parametrize("case", NO_COST)
def test_what_joins_but_says_nothing_has_an_unknown_cost(site: SimulatedSite, tmp_path: Path, case: str) -> None:
    options = ("--progress", "") if case == "no counter named" else ()
    got = audited(NO_COST[case](site.block()), tmp_path, options)
    assert (got.status, got.document["lost_hours"], got.document["estimates"]) == (0, 0, [])
    workloads: list[dict[str, float]] = got.document["workloads"]  # type: ignore[assignment]
    assert sum(each["unknown_hours"] for each in workloads) == pytest.approx(sum(e["shared_hours"] for e in workloads))
    assert (got.document["separations"], got.document["match"], got.document["orders"]) == ([], None, None)
    page = (tmp_path / "page.html").read_text()
    assert "is known, but not what it cost" in page
    assert "Keep apart" not in page


def one_pod_a_device(block: SampleBlock) -> SampleBlock:
    """What an exporter shows that names one pod of a shared device: the one whose name comes first."""
    taken: dict[str, set[float]] = {}

    def first(each: SampleSeries) -> SampleSeries:
        if each.name != "DCGM_FI_DEV_GPU_UTIL" or "pod" not in each.labels:
            return replace(each, times_s=each.times_s[:0], values=each.values[:0])
        seen = taken.setdefault(each.labels["UUID"], set())
        kept = np.array([time_s not in seen for time_s in each.times_s.tolist()], dtype=bool)
        seen |= set(each.times_s.tolist())
        return replace(each, times_s=each.times_s[kept], values=each.values[kept])

    return on_device(first)(block)


def test_sharing_that_an_exporter_hides_is_told_and_not_taken_for_none(site: SimulatedSite, tmp_path: Path) -> None:
    got = audited(one_pod_a_device(site.block()), tmp_path, ())
    assert (got.status, got.document["shared_hours"], got.document["hides_sharing"]) == (0, 0, True)
    page = (tmp_path / "page.html").read_text()
    assert "KUBERNETES_VIRTUAL_GPUS=true. What sharing cost is unknown." in page
    assert "sharing cost nothing" not in page


def true_lost_hours(site: SimulatedSite) -> float:
    """Job-hours lost by sharing in the time that monitoring saw, by the plan and the planted slowdowns."""
    lost = 0.0
    for device in range(site.devices):
        pods = [pod for pod in site.pods if pod.device == device]
        blind = site.exporter_down[device] + site.prometheus_down
        moments = {t for pod in pods for t in (pod.start_s, pod.end_s)} | {t for span in blind for t in span}
        for low, high in pairwise(sorted(moments)):
            middle = (low + high) / 2
            here = [pod.workload for pod in pods if pod.start_s <= middle < pod.end_s]
            if not inside(middle, blind):
                for k, victim in enumerate(here):
                    slowdown = np.prod([planted_slowdown(victim, name) for name in here[:k] + here[k + 1 :]])
                    lost += (high - low) / 3600 * (1 - 1 / float(slowdown))
    return lost


def thinned(every: int) -> Change:
    """Every second or third sample only: a longer scrape interval."""

    def thin(each: SampleSeries) -> SampleSeries:
        kept = np.round(each.times_s / 15.0).astype(np.int64) % every == 0
        return replace(each, times_s=each.times_s[kept], values=each.values[kept])

    return lambda block: SampleBlock(device=tuple(map(thin, block.device)), progress=tuple(map(thin, block.progress)))


def missing(share: float) -> Change:
    """Scrapes that failed here and there."""

    def drop(each: SampleSeries) -> SampleSeries:
        kept = RNG.random(len(each.times_s)) >= share
        return replace(each, times_s=each.times_s[kept], values=each.values[kept])

    return on_counter(drop)


def rates(each: SampleSeries) -> SampleSeries:
    """Steps per second over the last minute, as `rate(...[1m])` shows them."""
    if len(each.values) < 6:
        return replace(each, times_s=each.times_s[:0], values=each.values[:0])
    rises = np.append(0.0, np.cumsum(np.clip(np.diff(each.values), 0.0, None)))
    return replace(
        each, times_s=each.times_s[4:], values=(rises[4:] - rises[:-4]) / (each.times_s[4:] - each.times_s[:-4])
    )


def with_more(more: Callable[[SampleBlock], SampleBlock]) -> Change:
    def of(block: SampleBlock) -> SampleBlock:
        other = more(block)
        return SampleBlock(device=block.device + other.device, progress=block.progress + other.progress)

    return of


def gang(block: SampleBlock) -> SampleBlock:
    """A job that is on two further devices all the time."""
    every = np.concatenate([each.times_s for each in block.device])
    times_s = np.arange(every.min(), every.max(), 15.0)
    flat = replace(block.device[0], times_s=times_s, values=np.full(len(times_s), 50.0))
    own = {"namespace": "ml", "pod": "gang-0"}
    return SampleBlock(device=tuple(labels_of(flat, UUID=f"GPU-gang-{k}", **own) for k in range(2)))


def processes(block: SampleBlock) -> SampleBlock:
    """Counters of processes on no GPU."""
    others = (labels_of(each, pod=f"web-{k}z", namespace="shop") for k, each in enumerate(block.progress[:9]))
    return SampleBlock(progress=tuple(others))


def replicas(block: SampleBlock) -> SampleBlock:
    """The same series from a second Prometheus, whose scrapes are four seconds later."""

    def later(each: SampleSeries) -> SampleSeries:
        return replace(labels_of(each, prometheus_replica="1"), times_s=each.times_s + 4.0)

    return SampleBlock(progress=tuple(map(later, block.progress)))


def without_counters(block: SampleBlock) -> SampleBlock:
    return replace(block, progress=tuple(each for k, each in enumerate(block.progress) if k % 8))


def ranks(block: SampleBlock) -> SampleBlock:
    slower = tuple(labels_of(replace(each, values=np.floor(each.values * 0.97)), rank="1") for each in block.progress)
    return replace(block, progress=tuple(labels_of(each, rank="0") for each in block.progress) + slower)


def hashed(each: SampleSeries) -> SampleSeries:
    """Workloads by a label of the job, as Slurm's exporters have, instead of by pods."""
    pod = each.labels.get("pod")
    return labels_of(each, app=pod.rsplit("-", 2)[0]) if pod else each


def old_labels(each: SampleSeries) -> SampleSeries:
    return renamed("pod", "pod_name")(renamed("namespace", "pod_namespace")(each))


def exported_labels(each: SampleSeries) -> SampleSeries:
    return labels_of(renamed("pod", "exported_pod")(renamed("namespace", "exported_namespace")(each)), pod="dcgm-1")


def exported_pod(each: SampleSeries) -> SampleSeries:
    return labels_of(renamed("pod", "exported_pod")(each), pod="agent-0", exported_namespace="ml")


def per_minute(block: SampleBlock) -> SampleBlock:
    return values(lambda each: 60 * each.values)(on_counter(rates)(block))


NO_TYPE = on_device(lambda each: labels_of(each, modelName=None))
RIGHT: dict[str, tuple[Change, tuple[str, ...]]] = {
    "restarts, gaps, resets and renamed pods": (same, ()),
    "by a label": (on_device(hashed), ("--by", "app")),
    "by several labels": (on_device(hashed), ("--by", "namespace+app")),
    "every job of a namespace as one workload": (same, ("--by", "namespace")),
    "labels of old exporters": (on_device(old_labels), ()),
    "labels that Prometheus renamed": (on_device(exported_labels), ()),
    "counters' labels that Prometheus renamed": (on_counter(exported_pod), ()),
    "an id in small letters": (on_device(renamed("UUID", "uuid")), ()),
    "a device type that no label names": (NO_TYPE, ("--device-type", "a100")),
    "counters with another label": (on_counter(renamed("pod", "k8s_pod")), ("--same-label", "pod=k8s_pod")),
    "counters without namespace": (on_counter(lambda each: labels_of(each, namespace=None)), ()),
    "tokens, not steps": (values(lambda each: 4096.0 * each.values), ()),
    "a counter that goes on after a checkpoint": (values(lambda each: each.values + 1e6), ()),
    "a rate as an expression": (expression(on_counter(rates)), ("--progress", RATE)),
    "a rate per minute": (expression(per_minute), ("--progress", f"60 * {RATE}")),
    "scrapes every 30 s": (thinned(2), ("--min-window", "2m")),
    "scrapes every minute": (thinned(4), ("--min-window", "4m", "--cell", "2h")),
    "scrapes that fail here and there": (missing(0.03), ()),
    "cells of ten minutes": (same, ("--cell", "10m")),
    "cells of a day": (same, ("--cell", "1d")),
    "a job on several devices beside": (with_more(gang), ()),
    "counters of processes on no GPU": (with_more(processes), ()),
    "jobs without a counter": (without_counters, ()),
    "counters of several ranks": (ranks, ()),
    "two replicas of one Prometheus": (with_more(replicas), ()),
    "two clusters that tell which": (two_clusters(counter_tells=True), ()),
    "late labels": (same, ("--exporter-delay", "30s")),
}


@pytest.mark.parametrize("case", RIGHT)
def test_a_right_audit_holds_the_lost_hours_that_were_planted(site: SimulatedSite, tmp_path: Path, case: str) -> None:
    change, options = RIGHT[case]
    got = audited(change(site.block()), tmp_path, options)
    assert got.status == 0, got.told
    workloads: list[dict[str, float]] = got.document["workloads"]  # type: ignore[assignment]
    low, high = (sum(each[name] for each in workloads) for name in ("lost_lower", "lost_upper"))
    truth = true_lost_hours(site) * (2 if case == "two clusters that tell which" else 1)
    unknown = sum(each["unknown_hours"] for each in workloads)
    print(f"{case}: {truth:.2f} in {low:.2f} to {high:.2f}, unknown {unknown:.2f}")
    assert low <= truth <= high + unknown
    jobs, counted = (int(str(got.document[name])) for name in ("jobs", "counted_jobs"))
    assert 0 < counted <= jobs
    told = f"The counter shows steps of {counted:,} of {jobs:,} jobs."
    assert (told in (tmp_path / "page.html").read_text()) == (counted < jobs)


def test_the_audit_tells_how_many_jobs_the_counter_counts(site: SimulatedSite, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    every, fewer = (
        audited(change(site.block()), folder, ())
        for change, folder in ((same, tmp_path / "all"), (without_counters, tmp_path))
    )
    assert every.document["jobs"] == fewer.document["jobs"]
    assert 0 < int(str(fewer.document["counted_jobs"])) < int(str(every.document["counted_jobs"]))


def test_a_span_begins_at_a_moment_or_so_long_before_its_end(site: SimulatedSite, tmp_path: Path) -> None:
    def since(text: str) -> dict[str, object]:
        folder = tmp_path / text
        folder.mkdir()
        return {**audited(site.block(), folder, ("--since", text)).document, "page": None}

    whole, late = since("30d"), since("4h")
    begin_s = float(str(whole["end_s"])) - 4 * 3600
    assert since(f"{begin_s!r}") == late
    assert float(str(late["start_s"])) == begin_s
    assert 0 < float(str(late["busy_hours"])) < float(str(whole["busy_hours"]))


OWNED: dict[str, Callable[[int, str], str]] = {
    "llm-train": lambda k, _: f"llm-train-{k}",  # a StatefulSet
    "bert-serve": lambda _, pod: pod,  # a Deployment
    "resnet": lambda _, pod: f"resnet-{pod[-5:]}",  # Jobs
    "etl-gather": lambda k, _: f"4711_{k}",  # a Slurm array
    "asr": lambda k, _: f"asr-{(k + 1) * 0x9E3779B1 % 2**32 | 0xA0000001:08x}",  # hashes
    "recsys": lambda k, _: f"recsys-gen-{k + 45}",  # numbers
}


def test_six_workloads_under_six_kinds_of_owners_are_six_once_the_proposed_rows_are_taken(
    site: SimulatedSite, tmp_path: Path
) -> None:
    block, names = site.block(), dict[str, str]()
    for k, pod in enumerate(site.pods):
        names[pod.name] = OWNED[pod.workload](k, pod.name)
    assert len(set(names.values())) == len(names)

    def owned(each: SampleSeries) -> SampleSeries:
        return labels_of(each, pod=names[each.labels["pod"]]) if "pod" in each.labels else each

    block = on_counter(owned)(on_device(owned)(block))
    (tmp_path / "before").mkdir()
    before = audited(block, tmp_path / "before", ())
    proposed = str(before.document["hint"]).split("pattern,workload ")[1].split(";")[0].split()
    (tmp_path / "names.csv").write_text("\n".join(("pattern,workload", *proposed)) + "\n")
    got = audited(block, tmp_path, ("--workloads", str(tmp_path / "names.csv")))
    workloads: list[dict[str, float]] = got.document["workloads"]  # type: ignore[assignment]
    assert sorted(str(each["workload"]) for each in workloads) == [
        "4711",
        "asr",
        "bert-serve",
        "llm-train",
        "recsys-gen",
        "resnet",
    ]
    low, high = (sum(each[name] for each in workloads) for name in ("lost_lower", "lost_upper"))
    assert low <= true_lost_hours(site) <= high


def test_parts_of_one_program_may_go_in_step_and_three_workloads_may_not() -> None:
    settings = MonitoringSettings(progress=STEPS)
    check_rates(settings, [1.0] * 50, 2)
    check_rates(settings, [1.0] * 40 + [1.2] * 10, 5)
    check_rates(settings, [1.0] * 9, 5)
    with pytest.raises(PreflightError, match="in 49 of 50 windows"):
        check_rates(settings, [1.0] * 49 + [1.2], 3)


def test_jobs_that_run_faster_in_company_are_refused_for_an_expression_alone() -> None:
    check_slowdowns(MonitoringSettings(progress=STEPS), faster=9, slower=0)
    check_slowdowns(MonitoringSettings(progress=RATE), faster=9, slower=9)
    with pytest.raises(PreflightError, match="9 slowdowns are below 1, and 8 above"):
        check_slowdowns(MonitoringSettings(progress=RATE), faster=9, slower=8)


def test_there_are_twenty_of_each() -> None:
    assert len(WRONG) >= 20
    assert len(RIGHT) >= 20
