"""Memory admission: sums of peaks and working sets with headroom, and the predicted risk of a misfit."""

import math
from dataclasses import replace

import pytest

from interfere.policy.answer.ranking import rank
from interfere.records import ActionKind, Device, Job, Limits, Snapshot
from tests.tables import DEVICE, TablePredictor, catalogue, context, plan, profile, resolver

GIB = 2.0**30
PREDICTOR = TablePredictor({("a", "a"): 1.1})
KNOWN = resolver(profile("a"))
JOB, RESIDENT = Job(id="x", workload="a"), Job(id="r", workload="a")


def refused(job: Job, resident: Job, predictor: TablePredictor = PREDICTOR, **limits: float) -> str:
    device = Device(id="d", type=DEVICE, memory_bytes=80 * GIB, residents=(resident,))
    found = plan(
        context(Snapshot(pending=(job,), devices=(device,), limits=Limits.of(**limits)), predictor, KNOWN, "d")
    )
    (ranking,) = rank(job, (device,), predictor, catalogue(KNOWN), Limits.of(**limits))
    why = found.refused[0].reason if found.refused else ""
    assert ranking.reason == (why or "allowed")
    return why


def test_the_sum_of_peaks_leaves_the_headroom_free() -> None:
    both = replace(JOB, memory_peak_bytes=40 * GIB), replace(RESIDENT, memory_peak_bytes=36 * GIB)
    assert refused(*both) == ""
    assert refused(*both, memory_headroom=0.05) == ""  # 76 of 76
    assert refused(*both, memory_headroom=0.1) == (
        "memory: 40 GiB + 36 GiB > 72 GiB (80 GiB less 0.1 of it as headroom)"
    )


def test_the_working_set_stands_in_for_an_unknown_peak_and_is_named() -> None:
    both = replace(JOB, memory_working_set_bytes=50 * GIB), replace(RESIDENT, memory_peak_bytes=40 * GIB)
    assert refused(*both) == "memory: 50 GiB (working set) + 40 GiB > 80 GiB"
    assert refused(replace(both[0], memory_peak_bytes=30 * GIB), both[1]) == ""  # the peak is what counts
    known = resolver(replace(profile("a"), memory_working_set_bytes=60 * GIB))
    device = Device(id="d", type=DEVICE, memory_bytes=80 * GIB, residents=(RESIDENT,))
    found = plan(context(Snapshot(pending=(JOB,), devices=(device,)), PREDICTOR, known, "d"))
    assert found.refused[0].reason == "memory: 60 GiB (working set) + 60 GiB (working set) > 80 GiB"
    known = resolver(replace(profile("a"), memory_working_set_bytes=60 * GIB, static_memory_peak_bytes=20 * GIB))
    assert plan(context(Snapshot(pending=(JOB,), devices=(device,)), PREDICTOR, known, "d")).refused == ()
    known = resolver(replace(profile("a"), static_memory_peak_bytes=50 * GIB))
    found = plan(context(Snapshot(pending=(JOB,), devices=(device,)), PREDICTOR, known, "d"))
    assert found.refused[0].reason == "memory: 50 GiB (static trace) + 50 GiB (static trace) > 80 GiB"


def test_a_job_that_does_not_fit_alone_shares_with_none_of_unknown_memory() -> None:
    too_large = replace(RESIDENT, memory_peak_bytes=81 * GIB)
    assert refused(JOB, too_large) == "memory: unknown + 81 GiB > 80 GiB"
    almost = replace(RESIDENT, memory_peak_bytes=75 * GIB)
    assert refused(JOB, almost, memory_headroom=0.1).startswith("memory: unknown + 75 GiB > 72 GiB")
    pending = replace(JOB, id="b", memory_peak_bytes=81 * GIB)
    allowed = Limits.of(allowed=frozenset({ActionKind.START_SHARED, ActionKind.WAIT}))
    devices = (Device(id="d", type=DEVICE, memory_bytes=80 * GIB),)
    snapshot = Snapshot(pending=(JOB, pending), devices=devices, limits=allowed)
    found = plan(context(snapshot, TablePredictor({("a", "a"): 1.1}), resolver(profile("a"))))
    assert [action.kind for action in found.actions] == [ActionKind.WAIT, ActionKind.WAIT]


def test_memory_nobody_knows_forbids_nothing() -> None:
    assert refused(JOB, replace(RESIDENT, memory_peak_bytes=79 * GIB)) == ""


def test_alone_a_job_may_use_the_headroom() -> None:
    job = replace(JOB, memory_peak_bytes=75 * GIB)
    devices = (Device(id="d", type=DEVICE, memory_bytes=80 * GIB),)
    snapshot = Snapshot(pending=(job,), devices=devices, limits=Limits.of(memory_headroom=0.5))
    assert plan(context(snapshot, PREDICTOR, KNOWN, "d")).actions[0].kind is ActionKind.START_ALONE
    too_much = replace(job, memory_peak_bytes=math.nan, memory_working_set_bytes=90 * GIB)
    (action,) = plan(context(replace(snapshot, pending=(too_much,)), PREDICTOR, KNOWN, "d")).actions
    assert action.reason == "memory: 90 GiB (working set) > 80 GiB on the largest device"
    (ranking,) = rank(too_much, devices, PREDICTOR, catalogue(KNOWN), Limits())
    assert ranking.reason == "memory: 90 GiB (working set) > 80 GiB"


@pytest.mark.parametrize(("risk", "allowed"), [(math.nan, True), (0.1, False), (0.2, True), (0.0, False)])
def test_a_pair_likelier_not_to_fit_than_the_risk_is_refused(risk: float, allowed: bool) -> None:
    predictor = TablePredictor({("a", "a"): 1.1}, fits={("a", "a"): 0.85})
    why = refused(JOB, RESIDENT, predictor, misfit_risk=risk)
    assert why == ("" if allowed else f"misfit risk: 0.15 > {risk:g} that both do not fit 80 GiB")
