"""A plan chooses the sharing mode of empty devices where the limits allow it: the best for the pair that starts."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from interfere.errors import InvalidInputError
from interfere.policy.decide import decide
from interfere.records import (
    ActionKind,
    Device,
    Job,
    Limits,
    MatrixBatch,
    MatrixPrediction,
    PairBatch,
    Plan,
    Prediction,
    Promise,
    RuleKind,
    ScopeLedger,
    Snapshot,
    SolveStatus,
)
from interfere.records.documents import from_json
from interfere.store.rows import promise_to_json
from tests.tables import DEVICE, TablePredictor, context, plan, profile, resolver

Slowdowns = Mapping[tuple[str, str], float]
NAMES = ("a", "b", "c", "d")
KNOWN = resolver(*map(profile, NAMES))


class ModeTables(TablePredictor):
    """One table of slowdowns for each sharing mode."""

    def __init__(self, tables: Mapping[str, Slowdowns]) -> None:
        super().__init__({}, spread=1.1)
        self._tables = {mode: TablePredictor(table, spread=1.1) for mode, table in tables.items()}

    def knows(self, device_type: str, mode: str) -> str:
        return "" if mode in self._tables else f"never saw {device_type}/{mode}: measure pairs there"

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        return self._tables[batch.mode].predict_pairs(batch)

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        return self._tables[batch.mode].predict_matrix(batch, quantile=quantile)


def table(pairs: Mapping[str, float], other: float = 2.5) -> dict[tuple[str, str], float]:
    """Slowdowns of both jobs of a pair such as "ab"; `other` of all that are not named."""
    return {(i, j): pairs.get(i + j, pairs.get(j + i, other)) for i, j in product(NAMES, NAMES)}


def snapshot(limits: Limits, *, devices: int = 2, mode: str = "timeslice", jobs: str = "abcd") -> Snapshot:
    return Snapshot(
        pending=tuple(Job(id=name, workload=name) for name in jobs),
        devices=tuple(Device(id=f"d{k}", type=DEVICE, mode=mode) for k in range(devices)),
        limits=limits,
    )


def modes_of(answer: Plan) -> dict[frozenset[str], str]:
    return {frozenset((each.job_id, each.partner_id)): each.mode for each in answer.actions if each.partner_id}


TABLES = {"timeslice": table({"ab": 1.2, "cd": 1.7}), "mps": table({"ab": 1.5, "cd": 1.3})}
ANY_MODE = Limits(choosable_modes=frozenset({"timeslice", "mps", "mig"}))


def test_each_device_gets_the_mode_that_is_best_for_its_pair() -> None:
    answer = decide(context(snapshot(ANY_MODE), ModeTables(TABLES), KNOWN), ScopeLedger(scope="default")).plan
    assert modes_of(answer) == {frozenset("ab"): "timeslice", frozenset("cd"): "mps"}
    on_mps = next(action for action in answer.actions if action.job_id == "c")
    assert (on_mps.slowdown, on_mps.slowdown_lower) == (pytest.approx(1.3), pytest.approx(1.3 / 1.1))
    assert on_mps.rule is not None
    assert on_mps.rule.sharing_mode == "mps"
    assert on_mps.reason.endswith("sharing mode mps, chosen for its device")
    assert answer.cost == pytest.approx(2 * 0.2 + 2 * 0.3)


def test_devices_keep_their_mode_where_the_limits_name_none() -> None:
    answer = plan(context(snapshot(Limits()), ModeTables(TABLES), KNOWN))
    assert set(modes_of(answer).values()) == {""}
    assert answer.cost == pytest.approx(2 * 0.2 + 2 * 0.7)


def test_a_device_with_a_resident_keeps_its_mode() -> None:
    held = snapshot(ANY_MODE, devices=1, jobs="d")
    held = replace(held, devices=(replace(held.devices[0], residents=(Job(id="c", workload="c"),)),))
    action = plan(context(held, ModeTables(TABLES), KNOWN)).actions[0]
    assert (action.kind, action.slowdown, action.mode) == (ActionKind.START_SHARED, pytest.approx(1.7), "")


def test_only_known_modes_are_chosen_and_a_pair_that_no_mode_allows_has_the_rule_of_its_own() -> None:
    limits = Limits.of(choosable_modes=frozenset({"mps", "priority"}), max_slowdown=1.5)
    answer = plan(context(snapshot(limits, devices=1, jobs="cd"), ModeTables(TABLES), KNOWN))
    assert {action.mode for action in answer.actions if action.partner_id} == {"mps"}  # 1.3 × 1.1 = 1.43 at risk .05
    tight = Limits.of(choosable_modes=frozenset({"mps"}), max_slowdown=1.05)
    refused = plan(context(snapshot(tight, devices=1, jobs="cd"), ModeTables(TABLES), KNOWN)).refused
    assert [each.rule.kind for each in refused if each.rule] == [RuleKind.REQUEST_SLOWDOWN_CAP]


@pytest.mark.parametrize("seed", range(12))
def test_no_assignment_of_modes_does_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    modes = ("timeslice", "mps", "stream")
    pairs = [i + j for k, i in enumerate(NAMES) for j in NAMES[k:]]
    tables = {mode: table(dict(zip(pairs, rng.uniform(1.0, 2.4, len(pairs)), strict=True))) for mode in modes}
    predictor = ModeTables(tables)
    chosen = plan(context(snapshot(Limits(choosable_modes=frozenset(modes))), predictor, KNOWN))
    fixed = []
    for assigned in product(modes, modes):
        scene = snapshot(Limits())
        devices = tuple(replace(each, mode=mode) for each, mode in zip(scene.devices, assigned, strict=True))
        answer = plan(context(replace(scene, devices=devices), predictor, KNOWN))
        fixed.append((sum(action.kind is ActionKind.WAIT for action in answer.actions), answer.cost))
    waiting = sum(action.kind is ActionKind.WAIT for action in chosen.actions)
    assert chosen.status is SolveStatus.OPTIMAL
    assert (waiting, pytest.approx(chosen.cost, abs=1e-6)) == min(fixed)


def test_unknown_words_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="choosable_modes"):
        Limits(choosable_modes=frozenset({"mpss"}))


def test_pairs_on_devices_of_four_seats_choose_their_mode_and_larger_groups_keep_that_of_the_device() -> None:
    seated = snapshot(ANY_MODE)
    seated = replace(seated, devices=tuple(replace(each, seats=4) for each in seated.devices))
    found = plan(context(seated, ModeTables(TABLES), KNOWN))
    for action in found.actions:
        assert not action.mode or len(action.partners) == 1
    own = plan(context(replace(seated, limits=Limits()), ModeTables(TABLES), KNOWN))
    assert found.cost <= own.cost + 1e-9


def test_a_promised_start_keeps_the_mode_that_was_chosen() -> None:
    first = decide(
        context(replace(snapshot(ANY_MODE), now_s=0.0), ModeTables(TABLES), KNOWN), ScopeLedger(scope="default")
    )
    again = decide(context(replace(snapshot(Limits()), now_s=1.0), ModeTables(TABLES), KNOWN), first.ledger).plan
    assert modes_of(again) == modes_of(first.plan)
    for promise in first.ledger.promises:
        assert from_json(Promise, promise_to_json(promise)).action.mode == promise.action.mode
