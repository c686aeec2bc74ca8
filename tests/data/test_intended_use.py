"""A table says what it may be used for, from its rows alone."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from interfere.data.quality import Limitation, intended_uses
from interfere.data.tables import Table
from interfere.records import NAN, JobProfile, PairMeasurement
from tests.data.cards.page_tables import card_text


def table(pairs: Iterable[tuple[str, str]], *, device_type: str = "t4", step_time_s: float = 0.1) -> Table:
    rows = tuple(
        PairMeasurement(victim=a, neighbour=b, device_type=device_type, mode="mps", slowdown=1.5) for a, b in pairs
    )
    names = sorted({name for pair in rows for name in (pair.victim, pair.neighbour)})
    jobs = tuple(JobProfile(workload=name, device_type=device_type, step_time_s=step_time_s) for name in names)
    return Table(name="t", jobs=jobs, pairs=rows)


def limitations(table: Table) -> tuple[Limitation, ...]:
    (use,) = intended_uses(table)
    return use.limitations


NAMES = [f"j{k}" for k in range(8)]


def test_a_full_matrix_may_train_a_model_of_its_own() -> None:
    (use,) = intended_uses(table((a, b) for a in NAMES for b in NAMES))
    assert use.limitations == ()
    assert "completes the matrix" in use.text()


def test_what_is_missing_is_said() -> None:
    assert limitations(table((a, a) for a in NAMES * 1)) == (Limitation.SELF_PAIRS_ONLY, Limitation.TOO_FEW_TO_TRAIN)
    one_way = [(a, b) for k, a in enumerate(NAMES) for b in NAMES[k + 1 :]]
    assert limitations(table(one_way)) == (Limitation.ONE_DIRECTION,)
    few = [pair for a, b in one_way[:12] for pair in ((a, b), (b, a))]
    assert limitations(table(few)) == (Limitation.LEVELS_BORROWED,)
    assert Limitation.NO_FACTS in limitations(table(few, step_time_s=NAN))


def test_blocks_that_disagree_may_train_nothing() -> None:
    full = table((a, b) for a in NAMES for b in NAMES)
    rng = np.random.default_rng(0)
    noise = tuple(replace(pair, passes=tuple(rng.uniform(1.0, 1.1, 2))) for pair in full.pairs)
    assert limitations(replace(full, pairs=noise)) == (Limitation.NOISE,)
    signal = tuple(
        replace(pair, passes=(x, x * 1.01)) for pair, x in zip(full.pairs, rng.uniform(1, 2, 64), strict=True)
    )
    assert limitations(replace(full, pairs=signal)) == ()


def test_a_small_table_beside_a_large_one_is_told_apart_in_the_card() -> None:
    large, small = table((a, b) for a in NAMES for b in NAMES), table([("j0", "j1")], device_type="a100")
    text = card_text(Table(name="both", jobs=large.jobs + small.jobs, pairs=large.pairs + small.pairs))
    assert "- t4, mps: 64 of 64 ordered pairs of 8 jobs: enough to train a model that completes the matrix" in text
    assert "- a100, mps: 1 of 4 ordered pairs of 2 jobs. too few pairs for a model of its own: may calibrate" in text
