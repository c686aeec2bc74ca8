"""Windows that contradict others, end to end: absurd ones, jobs that change, reporters that forge and are muted."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.records import (
    ObservationResult,
    ReporterWeight,
    Rollback,
)
from interfere.serving.server import RunningServer
from tests.models import expected
from tests.serving.test_log import medians
from tests.serving.test_observations import APPLIED, REJECTED, median, results, window

DAY_S = 86_400.0
QUARANTINED = ObservationResult.QUARANTINED


def test_an_absurd_window_hardly_counts_and_is_told(client: PolicyClient) -> None:
    client.observe([window(str(k), "infer", "gemm", slowdown=expected("infer", "gemm")) for k in range(20)])
    before = medians(client)
    (answer,) = client.observe([window("absurd", "infer", "gemm", slowdown=80.0)])
    assert answer.result is QUARANTINED
    assert "standard deviations" in answer.reason
    assert 0.0 < answer.weight < 0.1
    assert medians(client) == pytest.approx(before, rel=0.005)
    assert client.observation_log(limit=1).entries[0].result is QUARANTINED
    assert client.model().online.quarantined == 1


def test_a_job_that_changes_is_learned_anew_by_itself(client: PolicyClient) -> None:
    model = expected("infer", "gemm")
    client.observe([window(f"calm {k}", "infer", "gemm", slowdown=model) for k in range(40)])
    others = median(client, "stream", "gemm")
    told = [client.observe([window(f"shift {k}", "infer", "gemm", slowdown=model * 1.7)])[0] for k in range(10)]
    assert told[0].result is QUARANTINED
    assert [one.result for one in told[-5:]] == [APPLIED] * 5
    assert "has changed" in "".join(one.reason for one in told)
    online = client.model().online
    assert (online.alarms, online.frozen) == (1, ())
    assert median(client) == pytest.approx(model * 1.7, rel=0.05)
    assert median(client, "stream", "gemm") == pytest.approx(others, rel=0.1)


def test_an_undecided_change_and_a_found_one_are_told(serve: Callable[..., RunningServer], settings: Settings) -> None:
    from tests.serving.test_server import scrape

    server = serve(replace(settings, metrics_port=0))
    with PolicyClient(server.address) as client:
        model = expected("infer", "gemm")
        client.observe([window(f"calm {k}", "infer", "gemm", slowdown=model) for k in range(40)])
        client.observe([window(f"shift {k}", "infer", "gemm", slowdown=model * 1.7) for k in range(2)])
        assert client.model().online.frozen == ("infer",)
        assert "interfere_drifting_workloads 1.0" in scrape(server)
        client.observe([window(f"stay {k}", "infer", "gemm", slowdown=model * 1.7) for k in range(3)])
        assert client.model().online.frozen == ()
        page = scrape(server)
        assert "interfere_drift_alarms_total 1.0" in page
        assert "interfere_drifting_workloads 0.0" in page


FORGED = [window(f"forged {k}", "infer", "gemm", slowdown=4.0, reporter="mallory") for k in range(60)]


def test_one_forging_reporter_hardly_moves_a_pair_that_others_report(client: PolicyClient) -> None:
    model = expected("infer", "gemm")
    for name in ("alice", "bob"):
        honest = [window(f"{name} {k}", "infer", "gemm", slowdown=model, reporter=name) for k in range(20)]
        client.observe(honest)
    client.observe(FORGED)
    assert median(client) == pytest.approx(model, rel=0.1)
    trust = {one.reporter: one.trust for one in client.model().online.reporters}
    assert trust["mallory"] < 0.3
    assert trust["alice"] > 0.9


def test_a_reporter_is_muted_rolled_back_and_taken_back(serve: Callable[..., RunningServer]) -> None:
    first = serve()
    with PolicyClient(first.address) as client:
        client.observe([window(f"honest {k}", "stream", "gemm", slowdown=1.9, reporter="alice") for k in range(10)])
        before = medians(client)
        client.observe(FORGED)
        forged = medians(client)
        assert forged != before
        # 1. Roll back one reporter: what others taught stays.
        roll = Rollback(observation_id="r", to_sequence=0, reason="forged", reporter="mallory")
        assert results(client, roll) == [APPLIED]  # type: ignore[arg-type]
        assert medians(client) == before
        entries = client.observation_log(limit=1000).entries
        assert {e.observation.reporter for e in entries if e.rolled_back} == {"mallory"}  # type: ignore[union-attr]
        # 2. Take the rollback back.
        undo = Rollback(observation_id="u", to_sequence=0, reason="it was true", undoes=71)
        assert results(client, replace(undo, observation_id="wrong", undoes=5), undo) == [REJECTED, APPLIED]  # type: ignore[arg-type]
        assert medians(client) == forged
        # 3. Mute it: later windows teach nothing.
        mute = ReporterWeight(observation_id="m", reporter="mallory", weight=0.0, reason="forged")
        assert results(client, mute) == [APPLIED]  # type: ignore[arg-type]
        (answer,) = client.observe([replace(FORGED[0], observation_id="later", slowdown=9.0)])
        assert (answer.result, answer.weight) == (QUARANTINED, 0.0)
        assert medians(client) == forged
    first.stop()
    with PolicyClient(serve().address) as client:  # a restart folds the same log
        assert medians(client) == forged
        assert [one.weight for one in client.model().online.reporters if one.reporter == "mallory"] == [0.0]
