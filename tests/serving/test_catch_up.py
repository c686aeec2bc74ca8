"""A process that catches up with the log knows what its writer knows, whatever was undone, forgotten or removed."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.records import JobRef, PairQuery, Progress, ReporterWeight, Rollback
from interfere.serving.learning import ledger, log_fold
from interfere.serving.metrics import Metrics
from interfere.serving.predicting import predict_pairs
from interfere.serving.service import PolicyCore
from interfere.serving.state import load_served_model
from interfere.store.store import SqliteStore
from tests.models import DEVICE_TYPE, WORKLOADS, profile
from tests.serving.test_observations import window

JOBS = (*WORKLOADS, "nobody")


@pytest.fixture
def cores(model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[PolicyCore, ...]]:
    """The core that writes and one that catches up; states are kept often, and the log is short."""
    monkeypatch.setattr(log_fold, "EVERY", 3)
    monkeypatch.setattr(ledger, "SNAPSHOT_EVERY", 16)
    model, path = load_served_model(model_folder), tmp_path / "store.db"
    with ExitStack() as resources:
        made = []
        for shared in (False, True):
            store = SqliteStore(path, shared=shared)
            resources.callback(store.close)
            made.append(PolicyCore(model=model, store=store, metrics=Metrics(), time_budget_s=1.0, max_log_entries=60))
        yield tuple(made)


def answers(core: PolicyCore) -> np.ndarray:
    """Every quantile that is answered for every pair."""
    answer = predict_pairs(
        core.state, PairQuery(jobs=tuple(JobRef(workload=name) for name in JOBS), device_type=DEVICE_TYPE)
    )
    return np.concatenate([answer.prediction.lower, answer.prediction.median, answer.prediction.upper])


def caught_up(writer: PolicyCore, reader: PolicyCore) -> np.ndarray:
    """What both answer, after the reader has read what the writer wrote."""
    reader.catch_up(writer.state.learned.last_sequence, writer.state.profiles.digest())
    expected = answers(writer)
    np.testing.assert_allclose(answers(reader), expected, rtol=1e-12)
    told = writer.state.learned.summary()
    assert reader.state.learned.summary() == told
    assert reader.state.learned.used_bytes == writer.state.learned.used_bytes
    return expected


def drawn_windows(rng: np.random.Generator, count: int, start: int) -> list[Progress]:
    """Windows of random pairs from three reporters, one of which reports nonsense."""
    made = []
    for k in range(start, start + count):
        victim, neighbour = (str(name) for name in rng.choice(JOBS, 2, replace=False))
        reporter = ("a", "b", "liar")[k % 3]
        slowdown = float(rng.uniform(1.2, 1.6)) * (6.0 if reporter == "liar" else 1.0)
        made.append(replace(window(f"w{k}", victim, neighbour, slowdown=slowdown), reporter=reporter))
    return made


def test_reports_weights_rollbacks_and_their_undoing(cores: tuple[PolicyCore, PolicyCore]) -> None:
    writer, reader = cores
    rng = np.random.default_rng(0)
    number = changed = 0

    def report(*observations: Progress | Rollback | ReporterWeight) -> None:
        results = {answer.result.value for answer in writer.observe(observations)}
        assert "rejected" not in results

    for round_ in range(12):
        windows = drawn_windows(rng, 7, number)
        number += 7
        report(*windows)
        before = caught_up(writer, reader)
        end = writer.state.learned.last_sequence
        kind = round_ % 4
        if kind == 0:
            weight = (round_ + 1) / 12
            report(ReporterWeight(observation_id=f"m{round_}", reporter="liar", weight=weight, reason="test"))
            report(*drawn_windows(rng, 3, number))
            number += 3
            caught_up(writer, reader)
            continue
        reporter = "liar" if kind == 1 else ""
        to = end - (5 if kind < 3 else 25)
        report(Rollback(observation_id=f"r{round_}", to_sequence=to, reason="test", reporter=reporter))
        changed += not np.allclose(caught_up(writer, reader), before, rtol=1e-9, atol=0.0, equal_nan=True)
        report(Rollback(observation_id=f"u{round_}", to_sequence=0, reason="test", undoes=end + 1))
        np.testing.assert_allclose(caught_up(writer, reader), before, rtol=1e-12)
    assert changed >= 6  # of 9: some of the windows are of a job of which nothing is known
    assert len(writer.log(None, 1_000).entries) < writer.state.learned.last_sequence  # some were forgotten


def test_an_undone_rollback_gives_back_what_forgotten_entries_taught(cores: tuple[PolicyCore, PolicyCore]) -> None:
    writer, reader = cores
    writer.observe(drawn_windows(np.random.default_rng(1), 200, 0)[:100])
    for k in range(100):
        writer.observe([window(f"more{k}", "infer", "stream", slowdown=1.5)])
    assert writer.log(None, 1_000).entries[-1].sequence > 1
    before = caught_up(writer, reader)
    end = writer.state.learned.last_sequence
    writer.observe([Rollback(observation_id="r", to_sequence=0, reason="a mistake")])
    assert not np.allclose(caught_up(writer, reader), before, equal_nan=True)
    writer.observe([Rollback(observation_id="u", to_sequence=0, reason="it was one", undoes=end + 1)])
    np.testing.assert_allclose(caught_up(writer, reader), before, rtol=1e-12)


def test_profiles_that_come_and_go(cores: tuple[PolicyCore, PolicyCore]) -> None:
    writer, reader = cores
    writer.observe(drawn_windows(np.random.default_rng(2), 15, 0))
    unknown = caught_up(writer, reader)
    (profile_id,) = writer.register([profile("nobody")])
    known = caught_up(writer, reader)
    assert not np.allclose(known, unknown, equal_nan=True)
    writer.register([profile("another")])  # of no job that was observed
    caught_up(writer, reader)
    writer.remove_profiles([profile_id])
    np.testing.assert_allclose(caught_up(writer, reader), unknown, rtol=1e-12)


def test_a_profile_on_another_device_type_stands_in_for_readers_at_once(cores: tuple[PolicyCore, PolicyCore]) -> None:
    writer, reader = cores
    writer.observe([window("alone", "elsewhere", steps=100.0)])
    caught_up(writer, reader)
    writer.register([replace(profile("elsewhere"), device_type="another type")])
    caught_up(writer, reader)
    for core in cores:
        found, _ = core.state.profile_of_ref(JobRef(workload="elsewhere"), DEVICE_TYPE, extrapolate=False)
        assert found is not None
        assert found.source == "observed"
        again, _ = core.state.profile_of_ref(JobRef(workload="elsewhere"), DEVICE_TYPE, extrapolate=False)
        assert again is found
