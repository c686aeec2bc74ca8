"""What an audit decides: pairs to keep apart and what that gains, what to type, and what Match would have done."""

import random
import shlex
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import yaml

from interfere.monitoring.audit import audit_document as wording
from interfere.monitoring.audit.advice import CompanyChange, choose_separations, hours_apart
from interfere.monitoring.audit.audit import AuditReport, AuditSums, audit
from interfere.monitoring.audit.audit_document import audit_document
from interfere.monitoring.audit.keeping_apart import CAP_KEY, WORKLOAD_KEY, Orders, orders, scheduler_name, slowdown_cap
from interfere.monitoring.audit.known_slowdowns import KnownSlowdowns
from interfere.monitoring.audit.slowdowns import SlowdownEstimate
from interfere.monitoring.preflight import ProgressCounts
from interfere.monitoring.reading import SharedTime, SiteReading
from interfere.monitoring.site_labels import DeviceIdentity, JobIdentity
from interfere.policy.context import PlanningContext, ProfileLookup
from interfere.policy.decide import decide
from interfere.records import Device, Job, JobProfile, Limits, Plan, ScopeLedger, Snapshot
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.objects.reading import read_pod
from interfere.serving.adapters.slurm.jobs import SlurmJob, is_safe
from interfere.sim.beliefs import MatrixPredictor
from interfere.study import recorded_jobs
from interfere.study.recorded_jobs import replay_with_match
from tests.monitoring.conftest import SETTINGS
from tests.monitoring.recorded_site import RecordedSite
from tests.monitoring.simulated_site import DEVICE_TYPE, WORKLOADS, WORST, SimulatedSite, planted_slowdown
from tests.monitoring.test_audit import estimate
from tests.serving.adapters.kubernetes.facts import pod, settings

HOUR_S = 3600.0


@pytest.fixture(scope="module")
def days() -> list[AuditReport]:
    """Audits of five simulated days."""
    sites = [SimulatedSite(seed=seed, hours=24, devices=4) for seed in range(20, 25)]
    return [audit(RecordedSite(site.block(), site.end_s), SETTINGS, site.start_s, site.end_s) for site in sites]


def true_gain(change: CompanyChange) -> float:
    """The gain of a change of hours by the planted slowdowns."""
    lost = sum(
        (shift.hours_before - shift.hours_after) * (1 - 1 / planted_slowdown(victim, neighbour))
        for shift in change.shifts
        for victim, neighbour in (shift.names, shift.names[::-1])
    )
    return lost - (change.device_hours_after - change.device_hours_before)


def test_the_planted_worst_pair_is_kept_apart_first_and_its_true_gain_is_in_the_interval(
    report: AuditReport, days: list[AuditReport]
) -> None:
    for each in (report, *days):
        first = each.separations[0]
        assert (first.victim, first.neighbour) == WORST
        assert first.change.lower <= true_gain(first.change) <= first.change.upper
        assert first.change.lower > 0


def test_true_gains_of_all_separations_and_of_match_are_in_their_intervals(days: list[AuditReport]) -> None:
    changes = [each.change for report in days for each in report.separations]
    changes += [report.separations[-1].total for report in days]
    inside = [change.lower <= true_gain(change) <= change.upper for change in changes]
    print(f"{sum(inside)} of {len(inside)} true gains of separations in their intervals")
    assert len(inside) >= 20
    assert sum(inside) >= 0.9 * len(inside)
    replays = [replay_with_match(report) for report in days]
    inside = [each.change.lower <= true_gain(each.change) <= each.change.upper for each in replays if each is not None]
    print(f"{sum(inside)} of {len(inside)} true gains of Match in their intervals")
    assert len(inside) == len(days)
    assert sum(inside) >= 4
    assert np.mean([each.change.gain for each in replays if each is not None]) > 0


def test_gains_fall_and_no_job_hour_is_lost(report: AuditReport) -> None:
    before: dict[tuple[str, tuple[str, ...]], float] = Counter()
    for each in report.shared_times:
        before[each.device.type, each.workloads] += each.seconds / HOUR_S
    totals = [each.total.gain for each in report.separations]
    assert all(later > earlier for earlier, later in pairwise(totals))
    assert report.separations[0].change.gain == max(each.change.gain for each in report.separations)
    apart = [(each.device_type, tuple(sorted((each.victim, each.neighbour)))) for each in report.separations]
    after = hours_apart(before, apart)  # type: ignore[arg-type]
    assert not set(after) & set(apart)
    for name in WORKLOADS:
        own = [sum(each * companies.count(name) for (_, companies), each in h.items()) for h in (before, after)]
        assert own[1] == pytest.approx(own[0], rel=1e-4)
    assert sum(after.values()) == pytest.approx(sum(before.values()), rel=1e-4)


def table_of(slowdowns: dict[tuple[str, str], float]) -> tuple[SlowdownEstimate, ...]:
    return tuple(estimate(victim, neighbour, slowdown) for (victim, neighbour), slowdown in slowdowns.items())


def test_two_workloads_without_other_company_run_one_after_the_other() -> None:
    """Together for 4 h they make 4 (1/3 + 1/2) h of progress: one after the other, as much takes 2/3 h less."""
    known = KnownSlowdowns(table_of({("a", "b"): 3.0, ("b", "a"): 2.0}))
    before = {(DEVICE_TYPE, ("a", "b")): 4.0}
    (only,) = choose_separations(before, known)
    assert (only.victim, only.neighbour) == ("a", "b")
    assert only.change.gain == pytest.approx(4 * (1 - 1 / 3 - 1 / 2))
    assert hours_apart(before, [(DEVICE_TYPE, ("a", "b"))]) == {(DEVICE_TYPE, (name,)): 4.0 for name in "ab"}
    faster = KnownSlowdowns(table_of({("a", "b"): 1.5, ("b", "a"): 1.5}))
    assert choose_separations(before, faster) == (), "one after the other is slower"


def test_an_uncertain_gain_is_told_as_one_that_nobody_can_tell() -> None:
    rows = table_of({("a", "b"): 2.05, ("b", "a"): 2.05})
    wide = tuple(
        SlowdownEstimate(**{name: getattr(row, name) for name in row.__slots__} | {"log_sd": 0.3}) for row in rows
    )
    (only,) = choose_separations({(DEVICE_TYPE, ("a", "b")): 4.0}, KnownSlowdowns(wide))
    assert not only.is_certain
    assert only.change.lower < 0 < only.change.gain
    assert orders((only,), wide) is None


def test_a_pair_that_nobody_knows_is_neither_kept_apart_nor_counted() -> None:
    known = KnownSlowdowns(table_of({("a", "b"): 3.0, ("b", "a"): 2.0}))
    hours = {(DEVICE_TYPE, ("a", "b")): 4.0, (DEVICE_TYPE, ("x", "y")): 9.0, (DEVICE_TYPE, ("a", "b", "x")): 9.0}
    (only,) = choose_separations(hours, known)
    assert only.total.device_hours_before == 4.0
    assert only.change.gain == pytest.approx(4 * (1 - 1 / 3 - 1 / 2))


# --- what to type -----------------------------------------------------------------------------------------------------


@pytest.fixture
def typed(report: AuditReport) -> Orders:
    found = orders(report.separations, report.estimates)
    assert found is not None
    return found


def test_kubernetes_orders_are_pod_templates_that_forbid_exactly_the_separations(
    report: AuditReport, typed: Orders
) -> None:
    templates = list(yaml.safe_load_all(typed.kubernetes))
    forbidden = set()
    for template in templates:
        own = template["metadata"]["labels"][WORKLOAD_KEY]
        if "spec" not in template:
            continue
        (term,) = template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (rule,) = term["labelSelector"]["matchExpressions"]
        assert (term["topologyKey"], rule["key"], rule["operator"]) == ("kubernetes.io/hostname", WORKLOAD_KEY, "In")
        forbidden |= {frozenset((own, value)) for value in rule["values"]}
        assert read_pod(pod("p", own, **template["spec"]), settings()).special == "pod affinity", (
            "interfere's controller leaves such a pod to Kubernetes"
        )
    assert forbidden == {frozenset((each.victim, each.neighbour)) for each in report.separations}
    labelled = {template["metadata"]["labels"][WORKLOAD_KEY] for template in templates}
    assert labelled == {name for pair in forbidden for name in pair}


def plan_of(report: AuditReport, snapshot: Snapshot) -> Plan:
    """A decision by the slowdowns of a report."""
    known = KnownSlowdowns(report.estimates)
    slowdowns = [[known.cost(DEVICE_TYPE, v, (n,)).slowdown for n in WORKLOADS] for v in WORKLOADS]
    profiles = {
        (name, DEVICE_TYPE): JobProfile(workload=name, device_type=DEVICE_TYPE, step_time_s=1.0, source="dcgm")
        for name in WORKLOADS
    }
    predictor = MatrixPredictor(
        version="audit",
        device_types=(DEVICE_TYPE,),
        index={name: k for k, name in enumerate(WORKLOADS)},
        slowdown=np.array(slowdowns),
        profiles=profiles,
    )
    catalogue = ProfileLookup(profiles=lambda job, kind: profiles.get((job.workload, kind)))
    context = PlanningContext(snapshot=snapshot, predictor=predictor, catalogue=catalogue)
    return decide(context, ScopeLedger(scope=snapshot.scope)).plan


def test_caps_are_read_by_both_adapters_and_keep_the_victim_from_that_neighbour_alone(
    report: AuditReport, typed: Orders
) -> None:
    assert (WORKLOAD_KEY, CAP_KEY) == (names.WORKLOAD, names.MAX_SLOWDOWN)
    caps = {}
    for template in yaml.safe_load_all(typed.kubernetes_with_interfere):
        read = read_pod(pod("p") | {"metadata": {"name": "p", "namespace": "ml"} | template["metadata"]}, settings())
        caps[read.workload] = float(read.note(names.MAX_SLOWDOWN))
    comments = [line.split("'")[1] for line in typed.slurm_with_interfere.splitlines()]
    assert all(map(is_safe, comments))
    jobs = [SlurmJob(id="1", state="PENDING", comment=comment) for comment in comments]
    assert {job.workload: float(job.comment_value("max_slowdown")) for job in jobs} == caps
    assert WORST[0] in caps
    for neighbour in WORKLOADS:
        devices = (Device(id="d", type=DEVICE_TYPE, residents=(Job(id="r", workload=neighbour),)),)
        victim = Job(id="v", workload=WORST[0], max_slowdown=caps[WORST[0]])
        plan = plan_of(report, Snapshot(pending=(victim,), devices=devices, limits=Limits.of(min_joint_throughput=0)))
        apart = neighbour in {each.neighbour for each in report.separations if each.victim == WORST[0]}
        assert [bool(action.places) for action in plan.actions if action.job_id == "v"] == [not apart]


def test_a_cap_that_would_also_bar_a_good_neighbour_is_not_offered() -> None:
    rows = table_of({("v", "bad"): 1.50, ("v", "good"): 1.48, ("v", "worse"): 3.0})
    assert slowdown_cap("v", ["bad", "worse"], rows) == 0.0
    assert 1.53 < slowdown_cap("v", ["worse"], rows) < 2.94
    assert slowdown_cap("v", ["never measured"], rows) == 0.0


@pytest.mark.parametrize(
    ("workload", "name"),
    [("bert", "bert"), ("ml/bert large", "ml-bert-large"), ("-x" * 60, "x" + "-x" * 30), ("/", "workload")],
)
def test_names_become_values_of_labels(workload: str, name: str) -> None:
    assert scheduler_name(workload) == name


def test_terminal_page_and_json_say_the_same(report: AuditReport) -> None:
    match = replay_with_match(report)
    assert match is not None
    document = audit_document(report, "x", match)
    (section,) = (part for part in document.parts if getattr(part, "anchor", "") == "change")
    assert [part.title for part in section.parts] == [  # type: ignore[union-attr]
        "Keep apart",
        "How to keep them apart",
        "What Match would have done",
    ]
    assert "GPU hours a week" in wording.match_text(match)
    assert len(wording.match_assumptions(match)) >= 3


# --- what Match would have done ---------------------------------------------------------------------------------------


def recorded(times: list[tuple[str, tuple[str, ...], float, float]], rows: tuple[SlowdownEstimate, ...]) -> AuditReport:
    """A report of jobs (named after their workload) on devices from one hour to another, with known slowdowns."""
    sums = AuditSums()
    shared = tuple(
        SharedTime(
            device=DeviceIdentity(id=device, type=DEVICE_TYPE, product=""),
            jobs=tuple(JobIdentity(id=name, workload=name.rstrip("0123456789")) for name in jobs),
            start_s=start * HOUR_S,
            end_s=end * HOUR_S,
        )
        for device, jobs, start, end in times
    )
    sums.add(
        SiteReading(
            windows=(),
            shared=shared,
            workload_of={job.id: job.workload for each in shared for job in each.jobs},
            recurring_labels=(),
            series=1,
            progress=ProgressCounts(series=1, joined=1, rises=1),
            left_out=Counter(),
        )
    )
    report = sums.report(0.0, 168 * HOUR_S, SETTINGS)
    return replace(report, estimates=rows)


BAD_PAIRS = {("a", "b"): 3.0, ("b", "a"): 2.0, ("c", "d"): 3.0, ("d", "c"): 2.0}
GOOD_PAIRS = dict.fromkeys((("a", "c"), ("c", "a"), ("b", "d"), ("d", "b"), ("a", "d"), ("d", "a")), 1.1)
TABLE = table_of(BAD_PAIRS | GOOD_PAIRS | {("b", "c"): 1.1, ("c", "b"): 1.1})


def test_match_pairs_the_same_jobs_better_on_the_same_devices_in_the_same_time() -> None:
    site = recorded([("g0", ("a", "b"), 0, 10), ("g1", ("c", "d"), 0, 10)], TABLE)
    match = replay_with_match(site)
    assert match is not None
    lost = 10 * (4 - 2 * (1 / 3 + 1 / 2)), 10 * 4 * (1 - 1 / 1.1)
    assert (match.change.lost_before, match.change.lost_after) == pytest.approx(lost)
    assert match.change.device_hours_after == pytest.approx(20.0) == match.change.device_hours_before
    assert match.change.gain == pytest.approx(lost[0] - lost[1])
    assert match.waited_hours == match.left_out_hours == 0.0


def test_match_takes_no_device_that_stood_idle_and_leaves_out_what_nobody_knows() -> None:
    times = [
        ("g0", ("a", "b"), 0, 10),
        ("g1", ("unheard", "of"), 0, 4),  # no slowdown is known
        ("g2", ("a1", "b1", "c1"), 2, 5),  # three jobs
        ("g3", ("gang", "c"), 0, 6),
        ("g4", ("gang",), 0, 6),  # on two devices
    ]
    match = replay_with_match(recorded([*times], TABLE))  # type: ignore[list-item]
    assert match is not None
    assert match.change.device_hours_after == match.change.device_hours_before == pytest.approx(10.0)
    assert match.change.gain == pytest.approx(0.0, abs=1e-9), "a and b have one device, and no other company"
    assert match.left_out_hours == pytest.approx(4 + 3 + 12)


def test_jobs_that_come_later_join_those_that_stay_and_gaps_of_monitoring_change_nothing() -> None:
    whole = [("g0", ("a",), 0, 4), ("g0", ("a", "b"), 4, 10), ("g1", ("c",), 0, 4), ("g1", ("c", "d"), 4, 10)]
    gaps = [("g0", ("a",), 0, 3), ("g0", ("a", "b"), 4, 7), ("g0", ("a", "b"), 7.5, 10), *whole[2:]]
    late = [("g0", ("a",), 0, 4.002), *whole[1:3], ("g1", ("c", "d"), 4.003, 10)]
    for times in (whole, gaps, late):
        match = replay_with_match(recorded(times, TABLE))  # type: ignore[arg-type]
        assert match is not None
        assert match.change.lost_after == pytest.approx(6 * 4 * (1 - 1 / 1.1), rel=0.01)
        assert match.change.device_hours_after == pytest.approx(20.0, rel=0.01)
        moved = {shift.names: shift.hours_after for shift in match.change.shifts}
        wanted = {("a", "b"): 0.0, ("c", "d"): 0.0, ("a", "d"): 6.0, ("b", "c"): 6.0}
        assert moved == pytest.approx(wanted, abs=0.01)


def test_names_that_no_scheduler_would_take_are_replayed_and_typed_all_the_same() -> None:
    bad, worse = "<script>\n" + "x" * 300, "b'; rm -rf $HOME #"
    rows = table_of({(bad, worse): 3.0, (worse, bad): 2.0, (worse, worse): 1.1, (bad, bad): 1.1})
    site = recorded([(f"g{k}", (f"{bad}{k}", f"{worse}{k}"), 0, 9) for k in (0, 1)], rows)
    match = replay_with_match(site)
    assert match is not None
    assert match.change.lost_after == pytest.approx(4 * 9 * (1 - 1 / 1.1))
    hours = {(DEVICE_TYPE, tuple(sorted((bad, worse)))): 9.0, (DEVICE_TYPE, (worse,)): 9.0, (DEVICE_TYPE, (bad,)): 9.0}
    typed = orders(choose_separations(hours, KnownSlowdowns(rows)), rows)
    assert typed is not None
    templates = list(yaml.safe_load_all(typed.kubernetes + "\n---\n" + typed.kubernetes_with_interfere))
    assert all(template["metadata"] for template in templates)
    for line in (*typed.slurm.splitlines(), *typed.slurm_with_interfere.splitlines()):
        assert shlex.split(line, comments=True)[0] in ("sbatch", "scontrol")


def test_random_records_keep_their_job_hours_under_match() -> None:
    """Law: under Match every job runs for as long as in the record, on a device with one other job at most."""
    for seed in range(5):
        rng, times = random.Random(seed), []
        for device in range(3):
            at = 0.0
            for k in range(6):
                jobs = tuple(f"{rng.choice('abcd')}{device}{k}{seat}" for seat in range(rng.choice((1, 2))))
                length = rng.uniform(0.5, 3)
                times.append((f"g{device}", jobs, at, at + length))
                at += length + rng.choice((0.0, 2.0))
        every = {(x, y): 1.2 for x in "abcd" for y in "abcd"} | BAD_PAIRS
        match = replay_with_match(recorded(times, table_of(every)))
        if match is None:
            continue
        assert match.waited_hours == 0.0
        job_hours = sum(len(jobs) * (end - start) for _, jobs, start, end in times)
        pairs_before, pairs_after = (
            sum(getattr(shift, name) for shift in match.change.shifts) for name in ("hours_before", "hours_after")
        )
        more_devices = match.change.device_hours_after - match.change.device_hours_before
        assert pairs_after - pairs_before == pytest.approx(-more_devices, abs=1e-4), job_hours


def test_of_a_long_time_the_newest_starts_are_replayed_and_the_gain_is_a_weeks(monkeypatch: pytest.MonkeyPatch) -> None:
    times = []
    for k in range(6):
        times += [("g0", (f"a{k}", f"b{k}"), 10 * k, 10 * k + 10), ("g1", (f"c{k}", f"d{k}"), 10 * k, 10 * k + 10)]
    whole = replay_with_match(recorded(times, TABLE))  # type: ignore[arg-type]
    monkeypatch.setattr(recorded_jobs, "MAX_DECISIONS", 8)
    newest = replay_with_match(recorded(times, TABLE))  # type: ignore[arg-type]
    assert whole is not None
    assert newest is not None
    assert (whole.start_s, newest.start_s) == (0.0, 30 * HOUR_S)
    assert newest.change.device_hours_before == pytest.approx(60.0)
    assert newest.change.gain == pytest.approx(whole.change.gain / 2)
    assert "3 starts in 138\u00a0h" in wording.match_text(newest)


def test_a_report_without_known_pairs_has_no_replay() -> None:
    assert replay_with_match(recorded([("g0", ("x", "y"), 0, 3)], TABLE)) is None
    assert replay_with_match(recorded([("g0", ("a",), 0, 3)], TABLE)) is None
    text = wording.undecided_text(recorded([("g0", ("a",), 0, 3)], TABLE))
    assert text.startswith("No pair is worth keeping apart")
