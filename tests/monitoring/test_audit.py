"""The audit recovers what was planted, names the worst pair first, and says what it does not know."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from interfere.commands.monitoring.audit import app
from interfere.errors import InvalidInputError, UnfitError
from interfere.monitoring.audit import audit_document as wording
from interfere.monitoring.audit.advice import Reason
from interfere.monitoring.audit.audit import AuditReport, AuditSums
from interfere.monitoring.audit.audit_document import audit_document
from interfere.monitoring.audit.known_slowdowns import Origin, PairEffects, PairVerdict
from interfere.monitoring.audit.slowdowns import Baseline, Episode, SlowdownEstimate, estimate_slowdowns
from interfere.monitoring.job_progress import MeasuredSteps
from interfere.monitoring.preflight import ProgressCounts
from interfere.monitoring.reading import CompanyWindow, JobInWindow, NotMeasured, SharedTime, SiteReading
from interfere.monitoring.settings import MonitoringSettings
from interfere.monitoring.site_labels import DeviceIdentity, JobIdentity
from interfere.reports.html_page import html_page
from tests.monitoring.conftest import SETTINGS
from tests.monitoring.saved_site import write_answers
from tests.monitoring.simulated_site import DEVICE_TYPE, EXCEPTIONS, WORKLOADS, WORST, SimulatedSite, planted_slowdown
from tests.reports.html_tree import Tree


def audit_page(report: AuditReport, source: str) -> str:
    return html_page(audit_document(report, source))


def recovered_frac(report: AuditReport) -> float:
    """Share of the estimates whose interval holds the planted slowdown."""
    inside = [
        each.lower <= math.prod(planted_slowdown(each.victim, name) for name in each.company) <= each.upper
        for each in report.estimates
    ]
    assert len(inside) >= 30
    return sum(inside) / len(inside)


def test_planted_slowdowns_lie_in_their_intervals_and_the_intervals_are_narrow(report: AuditReport) -> None:
    assert recovered_frac(report) >= 0.9
    widths = [math.log(each.upper / each.lower) / 2 for each in report.estimates]
    assert np.median(widths) < 0.05


def test_the_worst_pair_comes_first_and_is_to_be_separated(report: AuditReport) -> None:
    first = report.pairs[0]
    assert (first.worst_side.victim, first.worst_side.company) == (WORST[0], WORST[1:])
    assert [pair.names for pair in report.pairs if pair.verdict is PairVerdict.SEPARATE] == [first.names]
    assert wording.headline(report).startswith(f"{WORST[0]} ran 3.")


def test_hours_are_those_of_the_plan(day: SimulatedSite, report: AuditReport) -> None:
    planned: dict[str, float] = {}
    for pod in day.pods:
        planned[pod.workload] = planned.get(pod.workload, 0.0) + (pod.end_s - pod.start_s) / 3600
    seen = {each.workload: each.alone_hours + each.shared_hours for each in report.workloads}
    blind = sum(end - start for spans in day.exporter_down for start, end in spans) / 3600 + 0.5
    for workload, hours in planned.items():
        assert hours - 2 * blind <= seen[workload] <= hours * 1.02 + 0.1


def test_lost_hours_are_the_progress_that_was_not_made(report: AuditReport) -> None:
    for each in report.workloads:
        assert each.lost_lower <= each.lost_hours <= each.lost_upper
        assert each.lost_hours < each.shared_hours
    for pair in report.pairs:
        truth = [planted_slowdown(*names) for names in (pair.names, pair.names[::-1])]
        expected = pair.device_hours * sum(1 - 1 / slowdown for slowdown in truth)
        assert pair.lost_hours == pytest.approx(expected, rel=0.1, abs=0.05)


def test_three_pairs_are_to_be_measured_next(report: AuditReport) -> None:
    assert len(report.next_pairs) == 3


def episode(workload: str, company: tuple[str, ...], job: str, rate: float, seconds: float = 600.0) -> Episode:
    return Episode(
        workload=workload,
        device_type=DEVICE_TYPE,
        company=company,
        job_id=job,
        seconds=seconds,
        steps=rate * seconds,
        windows=1,
    )


def test_a_job_of_its_own_speed_is_compared_with_itself_where_it_was_alone() -> None:
    """Jobs of one workload differ fivefold: their own baselines leave nothing of it, others' widen the interval."""
    rng = np.random.default_rng(0)
    same_inside = other_inside = 0
    for _ in range(40):
        own = []
        for k, speed in enumerate(10 * np.exp(rng.uniform(0, 1.6, 12))):
            own.append(episode("v", (), f"j{k}", speed * math.exp(rng.normal(0, 0.02))))
            own.append(episode("v", ("n",), f"j{k}", speed / 1.5 * math.exp(rng.normal(0, 0.02))))
        (same,) = estimate_slowdowns(own)
        assert same.baseline is Baseline.SAME_JOBS
        assert same.upper / same.lower < 1.1
        same_inside += same.lower <= 1.5 <= same.upper
        (other,) = estimate_slowdowns([*own[0:12:2], *own[13::2]])
        assert other.baseline is Baseline.OTHER_JOBS
        assert other.upper / other.lower > 1.5
        other_inside += other.lower <= 1.5 <= other.upper
    assert same_inside >= 36
    assert other_inside >= 36


def test_coverage_holds_for_few_noisy_episodes() -> None:
    """95 % intervals over many small sites: three times alone, two in company, noise that nobody told."""
    rng = np.random.default_rng(1)
    inside = sites = 0
    for _ in range(70):
        sd, truth = rng.uniform(0.01, 0.08), math.exp(rng.uniform(0, 1))
        episodes = [
            episode(name, company, f"{name}{k}{len(company)}", 20 / slowdown * math.exp(rng.normal(0, sd)))
            for name in ("v", "w", "x")
            for company, slowdown, count in (((), 1.0, 3), (("n",), truth, 2))
            for k in range(count)
        ]
        for each in estimate_slowdowns(episodes):
            inside += each.lower <= truth <= each.upper
            sites += 1
    assert inside / sites >= 0.92


def test_an_episode_that_went_wrong_does_not_move_the_estimate() -> None:
    rng = np.random.default_rng(2)
    episodes = [episode("v", (), f"a{k}", 10 * math.exp(rng.normal(0, 0.02))) for k in range(8)]
    episodes += [episode("v", ("n",), f"b{k}", 5 * math.exp(rng.normal(0, 0.02))) for k in range(8)]
    (clean,) = estimate_slowdowns(episodes)
    (with_one,) = estimate_slowdowns([*episodes, episode("v", ("n",), "bad", 0.4)])
    assert with_one.slowdown == pytest.approx(clean.slowdown, rel=0.03)


DEVICE = DeviceIdentity(id="GPU-1", type=DEVICE_TYPE, product="")


def window_of(each: Episode) -> CompanyWindow:
    """A window in which the job of an episode was measured, and its neighbours were not."""
    steps = MeasuredSteps(start_s=0.0, end_s=each.seconds, steps=each.steps, samples=9)
    own = JobInWindow(job=JobIdentity(id=each.job_id, workload=each.workload), measured=steps)
    beside = (
        JobInWindow(job=JobIdentity(id=f"{each.job_id}+{k}", workload=name), not_measured=NotMeasured.NO_COUNTER)
        for k, name in enumerate(each.company)
    )
    return CompanyWindow(device=DEVICE, start_s=0.0, end_s=each.seconds, jobs=(own, *beside))


def shared_times(hours: dict[tuple[str, ...], float]) -> Iterator[SharedTime]:
    """Times of jobs of these workloads on one device, one after the other."""
    at_s = 0.0
    for k, (names, h) in enumerate(hours.items()):
        jobs = tuple(JobIdentity(id=f"{name}-{k}-{place}", workload=name) for place, name in enumerate(names))
        yield SharedTime(device=DEVICE, jobs=jobs, start_s=at_s, end_s=at_s + h * 3600)
        at_s += h * 3600


def report_of(episodes: list[Episode], hours: dict[tuple[str, ...], float]) -> AuditReport:
    """A report of episodes and hours made by hand."""
    sums = AuditSums()
    sums.add(
        SiteReading(
            windows=tuple(map(window_of, episodes)),
            shared=tuple(shared_times(hours)),
            workload_of={each.job_id: each.workload for each in episodes},
            recurring_labels=(),
            series=9,
            progress=ProgressCounts(series=1, joined=1, rises=1),
            left_out=Counter(),
        )
    )
    return sums.report(0.0, 86400.0, SETTINGS)


def test_a_workload_never_alone_is_predicted_or_unknown_and_said_to_be() -> None:
    measured = [
        episode(v, company, f"{v}{company}{k}", 10.0 / (1.5 if company else 1.0) * (1 + 0.01 * k))
        for v, n in (("a", "b"), ("b", "a"), ("a", "c"), ("c", "a"))
        for company in ((), (n,))
        for k in range(3)
    ]
    never = [episode("new", ("a",), "new1", 3.0), episode("odd", ("even",), "odd1", 3.0)]
    hours = {
        ("a", "b"): 5.0,
        ("a", "c"): 4.0,
        ("a", "new"): 3.0,
        ("even", "odd"): 2.0,
        ("a",): 1.0,
        ("b",): 1.0,
        ("c",): 1.0,
    }
    got = report_of(measured + never, hours)
    sides = {(side.victim, side.company): side for pair in got.pairs for side in pair.sides}
    assert sides["a", ("b",)].origin is Origin.MEASURED
    new = sides["new", ("a",)]
    assert new.origin is Origin.PREDICTED
    assert new.lower < new.slowdown < new.upper
    assert new.upper / new.lower > sides["a", ("b",)].upper / sides["a", ("b",)].lower
    assert sides["odd", ("even",)].origin is Origin.UNKNOWN
    assert math.isnan(sides["odd", ("even",)].slowdown)
    lost = {each.workload: each for each in got.workloads}
    assert (lost["odd"].lost_hours, lost["odd"].unknown_hours) == (0.0, 2.0)
    notes = "\n".join(wording.notes(got))
    assert "Never seen alone, so without a baseline: even, new, odd" in notes
    first = got.next_pairs[0]
    assert first.names == ("even", "odd")
    assert first.reason is Reason.NEVER_ALONE
    assert "even and odd alone as well" in wording.next_pair_text(first)
    page = audit_page(got, "test")
    assert "unknown" in page
    assert "predicted from other pairs" in page


def test_a_cost_that_nobody_measured_is_unknown_and_not_nothing() -> None:
    """Neither the whole site's cost, nor that of a workload whose every company is unknown, is told as 0 hours."""
    never_alone = [episode("a", ("b",), f"a{k}", 10.0) for k in range(3)]
    got = report_of(never_alone, {("a", "b"): 5.0, ("a",): 1.0, ("b",): 1.0})
    assert wording.total(got) == "What sharing cost is unknown for all 10.0\u00a0h of jobs in company."
    assert not re.search("\\b0\\.0\\s*h", audit_page(got, "test"))


def estimate(victim: str, neighbour: str, slowdown: float) -> SlowdownEstimate:
    return SlowdownEstimate(
        victim=victim,
        company=(neighbour,),
        device_type=DEVICE_TYPE,
        slowdown=slowdown,
        lower=slowdown * 0.98,
        upper=slowdown * 1.02,
        log_sd=0.01,
        baseline=Baseline.SAME_JOBS,
        episodes=5,
        windows=5,
        solo_episodes=5,
        solo_seconds=3600.0,
        noise_sd=0.02,
    )


def test_pairs_that_were_not_measured_are_predicted_from_both_sides_effects() -> None:
    """Three quarters of the planted table are measured; 95 % intervals of the others hold the truth."""
    pairs = [(v, n) for v in WORKLOADS for n in WORKLOADS if (v, n) not in EXCEPTIONS]
    rng = np.random.default_rng(5)
    errors, inside = [], []
    for _ in range(20):
        hidden = {pairs[k] for k in rng.choice(len(pairs), len(pairs) // 4, replace=False)}
        effects = PairEffects([estimate(*pair, planted_slowdown(*pair)) for pair in pairs if pair not in hidden])
        for pair in hidden:
            predicted = effects.predict(*pair)
            assert predicted is not None
            errors.append(abs(predicted[0] - math.log(planted_slowdown(*pair))))
            inside.append(errors[-1] <= 1.96 * predicted[1])
    assert np.median(errors) < 0.05
    assert np.mean(inside) >= 0.9
    assert effects.predict("new", "unheard-of") is None
    assert effects.predict("new", WORKLOADS[0])[1] > effects.predict(*pairs[0])[1]  # type: ignore[index]


def test_hundreds_of_workloads_are_one_report() -> None:
    rng = np.random.default_rng(4)
    names = [f"w{k:03d}" for k in range(100)]
    chosen = {tuple(sorted(rng.choice(names, 2, replace=False))) for _ in range(300)}
    episodes = [episode(name, (), f"{name}-alone", 10.0) for name in names[:80]]
    episodes += [episode(v, (n,), f"{v}-{n}", 10.0 / rng.uniform(1, 3)) for a, b in chosen for v, n in ((a, b), (b, a))]
    got = report_of(episodes, {pair: float(rng.uniform(0.1, 5)) for pair in chosen} | {(name,): 1.0 for name in names})
    assert len(got.pairs) == len(chosen)
    assert len(got.next_pairs) == 3
    assert len(got.separations) >= 2
    assert audit_page(got, "test")


def test_a_rate_that_load_moves_is_said_to_be_confounded() -> None:
    rng = np.random.default_rng(3)
    episodes = [
        episode(v, company, f"{v}{k}{len(company)}", 10 * math.exp(rng.normal(0, sd)) / (1.3 if company else 1))
        for v, n, sd in (("web", "train", 0.4), ("train", "web", 0.01))
        for company in ((), (n,))
        for k in range(10)
    ]
    got = report_of(episodes, {("train", "web"): 5.0, ("train",): 2.0, ("web",): 2.0})
    moved = {each.workload: each.moved_by_load for each in got.workloads}
    assert moved == {"web": True, "train": False}
    assert any(line.startswith("web: its rate varies by") for line in wording.notes(got))


def test_the_page_loads_nothing_escapes_names_and_is_the_same_each_time(report: AuditReport) -> None:
    page = audit_page(report, "<b>http://prometheus</b>")
    assert page == audit_page(report, "<b>http://prometheus</b>")
    assert "<b>http://prometheus</b>" not in page
    root = Tree(page.removeprefix("<!doctype html>\n")).root
    assert not root.all("script")
    assert not root.all("link")
    assert not [e for e in root.walk() if {"src", "href"} & set(e.attributes)]
    first_row = root.all("tbody")[0].all("tr")[0]
    assert [cell.words.strip() for cell in first_row.inside[:2]] == list(WORST)
    assert "prefers-color-scheme: dark" in page
    assert "viewport" in page
    hostile = report_of([episode("<script>", (), "j", 1.0)], {("<script>", "<script>"): 1.0})
    assert "<script>" not in audit_page(hostile, "x")


def test_the_command_reads_saved_answers_and_writes_the_page(day: SimulatedSite, tmp_path: Path) -> None:
    answers = write_answers(tmp_path / "answers", day.block().between(day.start_s, day.start_s + 4 * 3600))
    page = tmp_path / "page.html"
    command = ["--from-files", str(answers), "--progress", "train_steps_total", "--out", str(page), "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["page"] == str(page)
    assert {row["victim"] for row in document["estimates"]} <= {pod.workload for pod in day.pods}
    assert document["pairs"][0]["verdict"] in [verdict.value for verdict in PairVerdict]
    assert document["match"]["change"]["lower"] <= document["match"]["change"]["gain"]
    assert document["match"]["decisions"] > 10
    assert {"victim", "neighbour", "change", "total", "is_certain"} <= document["separations"][0].keys()
    assert set(document["orders"]) == {
        f"{name}{more}" for name in ("kubernetes", "slurm") for more in ("", "_with_interfere")
    }
    assert page.read_text().startswith("<!doctype html>")
    text = CliRunner().invoke(app, [*command[:-1]])
    assert "Who hurts whom" in text.output
    assert "What Match would have done" in text.output
    assert "GPU hours a week" in page.read_text()


def test_by_pod_nothing_can_be_compared_and_a_hint_names_the_label_that_recurs(
    day: SimulatedSite, tmp_path: Path
) -> None:
    answers = write_answers(tmp_path / "answers", day.block().between(day.start_s, day.start_s + 4 * 3600), app=True)
    command = [
        "--from-files",
        str(answers),
        "--progress",
        "train_steps_total",
        "--out",
        str(tmp_path / "p.html"),
        "--json",
    ]
    by_pod = json.loads(CliRunner().invoke(app, [*command, "--by", "pod"]).stdout)
    assert "--by app (6 names)" in by_pod["hint"]
    assert {each["baseline"] for each in by_pod["estimates"]} <= {Baseline.SAME_JOBS.value}
    by_app = json.loads(CliRunner().invoke(app, [*command, "--by", "app"]).stdout)
    assert by_app["hint"] == ""
    assert len(by_app["estimates"]) > 10


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"label_map": ["pod"]}, "not a pair of labels"),
        ({"cell": "2m"}, "four times min_window_s"),
        ({"cell": "soon"}, "not a duration"),
        ({"mode": "magic"}, "sharing mode"),
    ],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, object], part: str) -> None:
    from interfere.commands.monitoring.options import monitoring_settings

    given = {"progress": "", "by": "pod", "label_map": None, "device": "", "mode": "mps", "cell": "1h"}
    given |= {"min_window": "60s", "exporter_delay": "0s", "step": "15s"} | options
    with pytest.raises(InvalidInputError, match=part):
        monitoring_settings(**given)  # type: ignore[arg-type]


def test_a_site_without_jobs_is_an_error_with_a_remedy() -> None:
    with pytest.raises(UnfitError, match="no job was seen"):
        AuditSums().report(0.0, 3600.0, MonitoringSettings())
