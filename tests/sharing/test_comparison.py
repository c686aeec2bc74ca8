"""Pairs that are really executed, and their table."""

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.commands.profile.group import app
from interfere.sharing.comparison import SCHEDULES, PairOutcome, fitting_s, summarise
from interfere.timeline.timelines import Timeline
from tests.timeline.examples import US, kernel, line


def test_the_table_has_every_mode_of_every_pair(tmp_path: Path) -> None:
    names = ("tests.sharing.sample_workloads:waiting", "tests.sharing.sample_workloads:training")
    arguments = ["filling", "--high", names[0], "--low", ",".join(names), "--steps", "2", "--json"]
    arguments += ["--out", str(tmp_path)]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    found = json.loads(done.stdout)
    rows = [(row["high"], row["low"], row["schedule"]) for row in found["pairs"]]
    assert rows == [("waiting", low, schedule.name) for low in ("waiting", "training") for schedule in SCHEDULES]
    page = Path(found["written"]).read_text(encoding="utf-8")
    assert all(schedule.name in page for schedule in SCHEDULES)
    assert [row["pairs"] for row in found["schedules"]] == [2] * len(SCHEDULES)
    assert all(row["slowdown"] >= 1 for row in found["pairs"])
    any_kernel = next(row for row in found["pairs"] if row["low"] == "training" and "no prediction" in row["schedule"])
    assert any_kernel["gap_use"] > 0


def test_the_time_into_which_kernels_fit_is_a_mean_over_the_kernel_that_comes_first() -> None:
    low = line("low", (10, 0), (30, 0))
    assert fitting_s(low, 9 * US) == 0
    assert fitting_s(low, 25 * US) == pytest.approx(10 * US / 2)  # the long one fits nowhere
    assert fitting_s(low, 40 * US) == pytest.approx((40 + 40) * US / 2)
    waits = Timeline(name="low", kernels=(kernel(10, 20),))
    assert fitting_s(waits, 40 * US) == pytest.approx(20 * US)  # its own gap passes between two kernels


def test_a_summary_counts_only_pairs_in_which_something_fits() -> None:
    def row(slowdown: float, gap_use: float, fit_s: float) -> PairOutcome:
        return PairOutcome(
            high="h",
            low="l",
            schedule="m",
            slowdown=slowdown,
            gap_use=gap_use,
            predicted_slowdown=slowdown * 1.02,
            predicted_gap_use=gap_use * 0.9,
            low_rate=0.5,
            fit_s=fit_s,
            gap_s=1.0,
        )

    (got,) = summarise([row(1.0, 0.9, 0.5), row(1.2, 0.4, 0.5), row(1.05, math.nan, 0.0)])
    assert (got.pairs, got.fitting_pairs) == (3, 2)
    assert got.kept_frac == pytest.approx(2 / 3)
    assert got.used_frac == pytest.approx(1 / 2)
    assert got.slowdown_max == 1.2
    assert got.slowdown_error == pytest.approx(0.02)
    assert got.gap_use_error == pytest.approx(0.1)
