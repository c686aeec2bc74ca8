"""Figures show the data they are drawn from, with titles and units."""

import math
from pathlib import Path

import numpy as np
import pytest

from interfere.errors import InvalidInputError
from interfere.features.pair import FeatureEncoder
from interfere.reports.document import Absence, Document
from interfere.reports.html_page import html_page
from interfere.training.dataset import Dataset, build_dataset, hold_out
from interfere.training.evaluation.cross_validation import Evaluation, evaluate_models
from interfere.training.evaluation.fewer_facts import FactSet
from interfere.training.evaluation.figures import error_by_job, predicted_vs_measured, slowdown_map
from interfere.training.evaluation.leaderboard import evaluate_tables
from interfere.training.evaluation.runs import leaderboard_figure, make_figure_folder, write_leaderboard_pages
from interfere.training.models.catalogue import select_models
from tests.reports.html_tree import Tree
from tests.training.worlds import additive, world


@pytest.fixture(scope="module")
def evaluations(dataset: Dataset) -> tuple[Evaluation, ...]:
    return evaluate_models(dataset, select_models("additive"))


def test_predicted_vs_measured_shows_every_test_and_its_error(
    dataset: Dataset, evaluations: tuple[Evaluation, ...]
) -> None:
    figure = predicted_vs_measured(dataset, evaluations)
    assert len(figure.panels) == 2
    assert figure.x.title == "measured slowdown (×)"
    for panel, one in zip(figure.panels, evaluations, strict=True):
        assert f"{one.scores.mae:.3f}" in panel.title
        (points,) = panel.points
        assert [point.x for point in points] == pytest.approx(np.exp(dataset.log_slowdown[one.index]))
        assert [point.y for point in points] == pytest.approx(np.exp(one.predicted_log))


def test_error_by_job_has_one_bar_per_victim_and_split_worst_on_top(
    dataset: Dataset, evaluations: tuple[Evaluation, ...]
) -> None:
    figure = error_by_job(dataset, evaluations)
    assert len(figure.rows) == len(np.unique(dataset.rows.victim))
    assert all(len(values) == 1 for row in figure.rows for values in row.values)
    worst = [max(values[0].value for values in row.values) for row in figure.rows]
    assert worst == sorted(worst, reverse=True)


def test_the_heat_map_leaves_what_was_not_measured_empty(encoder: FeatureEncoder) -> None:
    kept, _ = hold_out(build_dataset([world(additive, 5)], encoder), frozenset({("w0", "w3")}))
    figure = slowdown_map(kept, 0)
    empty = {pair for pair, cell in figure.cells.items() if cell.absence is Absence.MISSING}
    assert empty == {("w0", "w3"), ("w3", "w0")}
    assert figure.cells["w1", "w2"].value == pytest.approx(additive(1, 2))
    assert "cpu-core, timeslice" in figure.title


def test_figures_of_equal_slowdowns_can_be_drawn(encoder: FeatureEncoder) -> None:
    flat = build_dataset([world(lambda i, j: 1.5, 4)], encoder)
    evaluations = evaluate_models(flat, select_models("mean"), splits=("pair",))
    figures = (predicted_vs_measured(flat, evaluations), error_by_job(flat, evaluations), slowdown_map(flat, 0))
    drawn = Tree(html_page(Document("flat", figures))).root
    assert len(drawn.all("figure")) == 3
    assert len(drawn.all("circle")) == len(flat)


def test_a_single_unmeasured_workload_is_left_out(encoder: FeatureEncoder) -> None:
    made = build_dataset([world(additive, 5)], encoder)
    some = made.take((made.rows.victim != 5) & (made.rows.neighbour != 5))
    assert len(slowdown_map(some, 0).rows) == len(slowdown_map(some, 0).columns) == 4


def test_a_leaderboard_becomes_a_page_with_every_model_in_its_figure(small_folder: Path, tmp_path: Path) -> None:
    (leaderboard,) = evaluate_tables(
        [small_folder], name="a/b c", models="mean", splits=("pair",), facts=(FactSet.UTILISATION,), seeds=(0, 1)
    )
    figure = leaderboard_figure(leaderboard)
    assert [row.label for row in figure.rows] == [row.name for row in leaderboard.rows]
    bars = [next(values[0] for values in row.values if values) for row in figure.rows]
    assert [bar.value for bar in bars] == [row.scores.mae for row in leaderboard.rows]
    assert all(
        math.isclose(bar.high - bar.value, row.scores.mae_se) for bar, row in zip(bars, leaderboard.rows, strict=True)
    )
    make_figure_folder(tmp_path / "new" / "plots")
    made = write_leaderboard_pages([leaderboard], tmp_path / "new" / "plots")
    assert [path.name for path in made] == ["a-b-c_pair_utilisation.html"]
    root = Tree(made[0].read_text(encoding="utf-8")).root
    assert len(root.all("figure")) == 3
    assert f"{leaderboard.rows[0].scores.mae:.4f}" in root.all("table")[0].words


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidInputError, match="--plots"):
        make_figure_folder(tmp_path / "file" / "plots")
    make_figure_folder(tmp_path / "plots")
    assert list((tmp_path / "plots").iterdir()) == []
