"""Windows of a job beside several others teach about its pairs, within the laws of the belief."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.predict.groups import composed_slowdown
from interfere.predict.online.state import dump_state, restore_state
from interfere.predict.residual import OnlineModel
from interfere.records import ObservationResult, PairBatch, Progress
from tests.tables import DEVICE, TablePredictor, profile

NAMES = tuple("abcdef")
TABLE = {(v, n): 1.1 + 0.1 * i + 0.05 * j for i, v in enumerate(NAMES) for j, n in enumerate(NAMES)}
PROFILES = {name: profile(name) for name in NAMES}
COMPANIES = st.lists(st.sampled_from(NAMES), min_size=2, max_size=5)


def resolve(workload: str, device_type: str):
    return PROFILES.get(workload) if device_type == DEVICE else None


def window(number: int, workload: str, company: tuple[str, ...], **more: object) -> Progress:
    values = {"start_s": 10.0 * number, "end_s": 10.0 * number + 10.0, "device_type": DEVICE, **more}
    return Progress(observation_id=f"o{number}", job_id="j", workload=workload, company=company, **values)


def untaught() -> OnlineModel:
    return OnlineModel(TablePredictor(TABLE))


def medians(model: OnlineModel) -> dict[tuple[str, str], float]:
    n = len(NAMES)
    answer = model.predict_pairs(
        PairBatch(
            jobs=tuple(PROFILES.values()),
            victim=np.repeat(np.arange(n), n),
            neighbour=np.tile(np.arange(n), n),
            device_type=DEVICE,
            mode="timeslice",
        )
    )
    return dict(zip(itertools.product(NAMES, NAMES), answer.median.tolist(), strict=True))


def group(model: OnlineModel, victim: str, company: tuple[str, ...] | list[str]) -> float:
    told = medians(model)
    return composed_slowdown([told[victim, name] for name in company])


@given(st.lists(st.tuples(COMPANIES, st.floats(0.6, 3.0)), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_every_window_moves_its_group_toward_it_and_never_past_it(windows: list[tuple[list[str], float]]) -> None:
    model = untaught()
    for k, (company, ratio) in enumerate(windows):
        before = group(model, "a", company)
        observed = min(max(before * ratio, 0.6), 100.0)  # the range of a window
        result = model.observe(window(k, "a", tuple(company), slowdown=observed), resolve)
        assert result.result in (ObservationResult.APPLIED, ObservationResult.QUARANTINED)
        assert result.error_ratio == pytest.approx(abs(observed / before - 1))
        after = group(model, "a", company)
        assert min(before, observed) - 1e-9 <= after <= max(before, observed) + 1e-9


def test_the_order_of_the_company_changes_nothing() -> None:
    told = []
    for company in itertools.permutations(("b", "c", "c", "f")):
        model = untaught()
        for k in range(3):
            model.observe(window(k, "a", company, slowdown=4.0), resolve)
        told.append(list(medians(model).values()))
    for other in told[1:]:
        np.testing.assert_allclose(other, told[0], rtol=1e-9)


def test_pairs_without_a_job_of_the_group_keep_their_answers() -> None:
    model = untaught()
    model.observe(window(0, "a", ("b", "c"), slowdown=3.0), resolve)
    for (victim, neighbour), median in medians(model).items():
        assert (median == TABLE[victim, neighbour]) == (victim != "a" and neighbour not in ("b", "c"))


def test_a_window_of_many_teaches_no_more_than_one_of_a_pair() -> None:
    ratio = 1.3
    of_pair, of_group = untaught(), untaught()
    of_pair.observe(window(0, "a", ("b",), slowdown=TABLE["a", "b"] * ratio), resolve)
    raised = composed_slowdown([TABLE["a", name] * ratio for name in "bcdef"])
    of_group.observe(window(0, "a", tuple("bcdef"), slowdown=raised), resolve)

    def moved(model: OnlineModel, victim: str, neighbour: str) -> float:
        return math.log(medians(model)[victim, neighbour] / TABLE[victim, neighbour])

    assert 0 < moved(of_group, "a", "b") < moved(of_pair, "a", "b")
    assert 0 < moved(of_group, "f", "b") < moved(of_pair, "f", "b")
    one_liar = untaught()
    one_liar.observe(window(0, "a", tuple("bcdef"), slowdown=100.0), resolve)
    assert max(abs(moved(one_liar, *pair)) for pair in TABLE) < math.log(3)


def test_the_same_log_gives_the_same_state_also_through_a_restart() -> None:
    rng = np.random.default_rng(0)
    windows = [
        window(k, str(victim), tuple(map(str, company)), slowdown=float(rng.uniform(1, 4)), reporter=f"r{k % 3}")
        for k, (victim, *company) in enumerate(rng.choice(NAMES, size=(60, 4)))
    ]
    whole, again = untaught(), untaught()
    for each in windows:
        whole.observe(each, resolve)
    for each in windows[:30]:
        again.observe(each, resolve)
    restored = untaught()
    restore_state(restored, dump_state(again))
    for each in windows[30:]:
        restored.observe(each, resolve)
    assert medians(restored) == medians(whole)
    assert dump_state(restored) == dump_state(whole)


def test_windows_of_three_wait_for_the_solo_rate() -> None:
    model, direct = untaught(), untaught()
    assert model.observe(window(0, "a", ("b", "c"), steps=25.0), resolve).result is ObservationResult.PENDING_SOLO
    model.observe(window(1, "a", (), steps=100.0), resolve)
    direct.observe(window(0, "a", ("b", "c"), slowdown=4.0), resolve)
    assert medians(model) == pytest.approx(medians(direct))


def test_windows_of_three_alone_teach_the_pairs_they_never_show() -> None:
    """Jobs suffer and harm otherwise than predicted; only groups of three and four are ever observed."""
    rng = np.random.default_rng(1)
    own, harm = (dict(zip(NAMES, rng.normal(0, 0.15, len(NAMES)), strict=True)) for _ in range(2))
    truth = {(v, n): max(1.0, s * math.exp(own[v] + harm[n])) for (v, n), s in TABLE.items()}

    def error(model: OnlineModel) -> float:
        told = medians(model)
        return float(np.mean([abs(1 / told[pair] - 1 / truth[pair]) for pair in TABLE]))

    model = untaught()
    before = error(model)
    for k in range(240):
        victim, *company = map(str, rng.choice(NAMES, size=int(rng.integers(3, 5)), replace=False))
        slowdown = composed_slowdown([truth[victim, name] for name in company]) * float(np.exp(rng.normal(0, 0.03)))
        model.observe(window(k, victim, tuple(company), slowdown=slowdown), resolve)
    assert error(model) < 0.5 * before
