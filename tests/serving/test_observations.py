"""ReportObservations end to end: what is measured moves the next prediction, once, and survives everything."""

import math
import sqlite3
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from interfere.client import PolicyClient
from interfere.errors import UnavailableError
from interfere.records import (
    Device,
    Job,
    ObservationResult,
    Prediction,
    Progress,
    ReporterWeight,
    Snapshot,
    Source,
)
from interfere.serving.server import RunningServer
from interfere.v1 import policy_pb2 as pb
from tests.models import DEVICE_TYPE, expected, profile
from tests.waiting import PATIENCE_S

APPLIED, DUPLICATE = ObservationResult.APPLIED, ObservationResult.DUPLICATE
PENDING, REJECTED = ObservationResult.PENDING_SOLO, ObservationResult.REJECTED


def window(name: str, victim: str = "infer", *company: str, **given: float) -> Progress:
    """Ten seconds of one job."""
    return Progress(
        observation_id=name,
        job_id="j",
        workload=victim,
        device_type=DEVICE_TYPE,
        start_s=0.0,
        end_s=10.0,
        company=company,
        **given,
    )


def median(client: PolicyClient, victim: str = "infer", neighbour: str = "gemm") -> float:
    return float(client.predict([victim, neighbour], pairs=[(0, 1)]).prediction.median[0])


def results(client: PolicyClient, *windows: Progress) -> list[ObservationResult]:
    return [answer.result for answer in client.observe(windows)]


def test_a_measured_slowdown_moves_its_pair_and_job_toward_it(client: PolicyClient) -> None:
    model, other = expected("infer", "gemm"), expected("infer", "stream")
    measured = model * 1.3
    assert results(client, window("1", "infer", "gemm", slowdown=measured)) == [APPLIED]
    once = median(client)
    assert model < once < measured
    assert other < median(client, "infer", "stream") < other * once / model
    assert median(client, "gemm", "infer") == pytest.approx(expected("gemm", "infer"), rel=1e-6)
    results(client, *(window(str(k), "infer", "gemm", slowdown=measured) for k in range(2, 40)))
    assert once < median(client) <= measured * (1 + 1e-9)
    assert median(client) == pytest.approx(measured, rel=0.01)


def test_a_solo_window_teaches_the_rate_that_shared_steps_wait_for(client: PolicyClient) -> None:
    shared = window("s", "infer", "gemm", steps=50.0)
    (answer,) = client.observe([shared])
    assert answer.result is PENDING
    assert "no solo window" in answer.reason
    assert median(client) == pytest.approx(expected("infer", "gemm"), rel=1e-6)
    assert client.model().online.pending_solo == 1
    assert results(client, window("a", steps=100.0)) == [APPLIED]  # twice as fast solo: the slowdown was 2
    assert expected("infer", "gemm") < median(client) < 2.0
    online = client.model().online
    assert (online.observations, online.pending_solo, online.solo_rates, online.corrected_pairs) == (2, 0, 1, 1)


def test_an_id_is_applied_once(client: PolicyClient) -> None:
    one = window("1", "infer", "gemm", slowdown=2.0)
    assert results(client, one, one) == [APPLIED, DUPLICATE]
    moved = median(client)
    assert results(client, one) == [DUPLICATE]
    assert median(client) == moved
    (other,) = client.observe([window("1", "infer", "gemm", slowdown=1.1)])
    assert other.result is REJECTED
    assert "other content" in other.reason
    assert median(client) == moved


def test_a_restart_forgets_nothing(serve: Callable[..., RunningServer]) -> None:
    first = serve()
    with PolicyClient(first.address) as client:
        results(
            client,
            window("1", "infer", "gemm", slowdown=2.0),
            window("2", "stream", "gemm", steps=20.0),
            window("3", "stream", steps=40.0),
            window("4", "train", "gemm", steps=1.0),
        )
        before, state = [median(client), median(client, "stream", "gemm")], client.model().online
    first.stop()
    with PolicyClient(serve().address) as client:
        assert [median(client), median(client, "stream", "gemm")] == before
        assert client.model().online == state
        assert state.pending_solo == 1
        assert results(client, window("1", "infer", "gemm", slowdown=2.0)) == [DUPLICATE]


def test_a_rejected_one_is_not_stored_and_may_come_again(client: PolicyClient) -> None:
    (answer,) = client.observe([window("1", "infer", steps=0.0)])
    assert answer.result is REJECTED
    assert "teaches no rate" in answer.reason
    assert client.model().online.observations == 0
    assert results(client, window("1", "infer", "gemm", slowdown=2.0)) == [APPLIED]


def test_a_window_in_company_of_several_moves_the_pairs_and_their_group(client: PolicyClient) -> None:
    def group() -> float:
        return float(client.predict(["infer", "gemm", "stream"], pairs=[(0, 1, 2)]).prediction.median[0])

    def pairs() -> np.ndarray:
        return np.array([median(client, "infer", "gemm"), median(client, "infer", "stream")])

    before, pairs_before = group(), pairs()
    assert results(client, window("1", "infer", "gemm", "stream", slowdown=1.2 * before)) == [APPLIED]
    assert before < group() < 1.2 * before
    assert (pairs() > pairs_before).all()
    assert results(client, window("1", "infer", "gemm", "stream", slowdown=1.2 * before)) == [DUPLICATE]


@pytest.mark.parametrize("weight", [0.0, 5e-324, 1e-9])
def test_a_reporter_of_a_vanishing_weight_is_muted(client: PolicyClient, weight: float) -> None:
    """Shares of such a weight among a group's pairs come to 0, which was an internal error."""
    client.observe([ReporterWeight(observation_id="w", reporter="node", weight=weight, reason="broken clock")])
    group = replace(window("g", "infer", "gemm", "stream", "train", "train", slowdown=3.0), reporter="node")
    (answer,) = client.observe([group])
    assert answer.result is not REJECTED
    assert median(client) == pytest.approx(expected("infer", "gemm"), rel=1e-6)


def test_windows_that_a_reporter_sent_before_it_was_muted_wait_in_vain(client: PolicyClient) -> None:
    """Learned with the weight 0 once a rate of the job came, they were an internal error."""
    pending = window("g", "infer", "gemm", "stream", "train", steps=100.0)
    assert results(client, replace(pending, reporter="node")) == [PENDING]
    client.observe([ReporterWeight(observation_id="w", reporter="node", weight=0.0, reason="broken clock")])
    assert results(client, window("solo", "infer", steps=1000.0)) == [APPLIED]
    assert median(client) == pytest.approx(expected("infer", "gemm"), rel=1e-6)
    assert client.model().online.pending_solo == 0


def test_a_window_of_an_unknown_job_is_kept_and_learned_once_its_profile_comes(client: PolicyClient) -> None:
    (answer,) = client.observe([window("1", "mine", "gemm", slowdown=2.5)])
    assert answer.result is PENDING
    assert "nothing is known of mine" in answer.reason
    client.register_profiles([profile("mine")])
    assert client.model().online.pending_solo == 0
    assert expected("mine", "gemm") < median(client, "mine", "gemm") < 2.5


def test_an_unknown_device_type_is_answered_after_enough_of_its_pairs_were_observed(
    serve: Callable[..., RunningServer],
) -> None:
    names, factor = ("train", "infer", "gemm", "stream"), 1.6
    pairs = [(v, n) for v in names for n in names if v != n]

    def ask(client: PolicyClient) -> Prediction:
        return client.predict(list(names), device_type="new-gpu").prediction

    def shared(k: int) -> Progress:
        victim, neighbour = pairs[k % len(pairs)]
        measured = factor * expected(victim, neighbour)
        return replace(window(f"pair {k}", victim, neighbour, slowdown=measured), device_type="new-gpu")

    first = serve()
    with PolicyClient(first.address) as client:
        alone = [replace(window(f"solo {name}", name, steps=100.0), device_type="new-gpu") for name in names]
        assert results(client, *alone) == [APPLIED] * 4
        assert results(client, *(shared(k) for k in range(4))) == [APPLIED] * 4
        assert set(ask(client).source) == {Source.ABSTAINED}
        assert results(client, shared(4)) == [APPLIED]
        early = ask(client)
        assert set(early.source) == {Source.MODEL}
        assert results(client, *(shared(k) for k in range(5, 36))) == [APPLIED] * 31
        late = ask(client)
        truth = np.array([factor * expected(v, n) for v, n in pairs])
        error = [float(np.abs(np.log(one.median / truth)).mean()) for one in (early, late)]
        assert error[1] < error[0] < abs(math.log(factor))
        assert error[1] < 0.05
        assert bool(np.all((early.lower <= truth) & (truth <= early.upper)))
        width = [float(np.log(one.upper / one.lower).mean()) for one in (early, late)]
        assert width[1] < 0.7 * width[0]
    first.stop()
    with PolicyClient(serve().address) as client:
        assert ask(client).median.tolist() == pytest.approx(late.median.tolist())


def test_a_broken_item_does_not_take_its_batch_along(stub: object, client: PolicyClient) -> None:
    def item(name: str, **given: object) -> pb.Observation:
        values = {"job_id": "j", "workload": "infer", "device_type": DEVICE_TYPE, "end_s": 9, "company": ["gemm"]}
        return pb.Observation(observation_id=name, progress=pb.Progress(**(values | given)))

    answers = stub.ReportObservations(  # type: ignore[attr-defined]
        pb.ReportObservationsRequest(
            observations=[
                item("1", slowdown=2.0),
                item("2", slowdown=float("nan")),
                item("3", steps=-1.0),
                item("4", slowdown=2.0, end_s=-1),
                item("5", slowdown=1e9),
                item("6", slowdown=0.01, company=["gemm", "stream"]),
                pb.Observation(observation_id="7"),
                item("", slowdown=2.0),
                item("9", slowdown=2.0),
            ]
        )
    ).answers
    assert [a.result for a in answers] == [1, *[4] * 7, 1]
    assert "observations[1]: progress.slowdown" in answers[1].reason
    assert all(a.reason for a in answers[1:8])
    assert client.model().online.observations == 2


def test_a_failed_write_leaves_prediction_and_store_as_they_were(server: RunningServer, client: PolicyClient) -> None:
    results(client, window("0", "infer", "gemm", slowdown=2.0))
    before = median(client)
    with sqlite3.connect(
        server.settings.store_path, isolation_level=None
    ) as other:  # e.g. a backup that holds the file
        other.execute("BEGIN IMMEDIATE")
        with (
            PolicyClient(server.address, timeout_s=10.0) as impatient,
            pytest.raises(UnavailableError, match="send it again"),
        ):
            impatient.observe([window(str(k), "infer", "gemm", slowdown=2.4) for k in range(1, 5)])
        other.execute("ROLLBACK")
    other.close()
    assert median(client) == before
    assert client.model().online.observations == 1
    assert results(client, window("1", "infer", "gemm", slowdown=2.4)) == [APPLIED]
    assert median(client) > before


def test_decisions_use_what_was_learned(client: PolicyClient) -> None:
    jobs = tuple(Job(id=name, workload=name) for name in ("train", "infer", "gemm", "stream"))
    snapshot = Snapshot(pending=jobs, devices=tuple(Device(id=d, type=DEVICE_TYPE) for d in "ab"))

    def partner() -> str:
        return client.match(snapshot).actions[1].partner_id

    first = partner()
    client.observe([window(str(k), "infer", first, slowdown=20.0) for k in range(20)])
    assert partner() != first


def test_many_reporters_at_once_lose_nothing(client: PolicyClient) -> None:
    batches = [[window(f"{b}-{k}", "infer", "gemm", slowdown=2.0) for k in range(10)] for b in range(16)]
    batches += batches  # every batch is sent twice
    with ThreadPoolExecutor(8) as pool:
        told = [answer.result for answers in pool.map(client.observe, batches) for answer in answers]
    assert (told.count(APPLIED), told.count(DUPLICATE)) == (160, 160)
    assert client.model().online.observations == 160


def test_reporters_of_the_same_windows_at_once_teach_them_once(server: RunningServer) -> None:
    """Several calls learn one after another: each window is applied for one caller, and a duplicate for the others."""
    rounds, callers = 40, 4
    together = threading.Barrier(callers)
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads take turns within a batch, not after it
    try:
        with PolicyClient(server.address, timeout_s=PATIENCE_S) as client, ThreadPoolExecutor(callers) as pool:

            def report(_: int) -> list[list[ObservationResult]]:
                answers = []
                try:
                    for number in range(rounds):
                        together.wait(PATIENCE_S)
                        windows = (window(f"{number}-{k}", "infer", "gemm", slowdown=2.0 + k / 10) for k in range(5))
                        answers.append(results(client, *windows))
                finally:
                    if len(answers) < rounds:
                        together.abort()  # nobody waits for a caller that failed
                return answers

            answers = list(pool.map(report, range(callers)))
            assert client.model().online.observations == 5 * rounds
    finally:
        sys.setswitchinterval(before_s)
    for number in range(rounds):
        for k in range(5):
            given = sorted((answer[number][k] for answer in answers), key=lambda result: result is not APPLIED)
            assert given == [APPLIED] + [DUPLICATE] * (callers - 1)
