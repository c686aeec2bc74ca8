"""Figures show the data they are drawn from, with titles and units."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.errors import InvalidInputError
from interfere.features.pair import FeatureEncoder
from interfere.training.dataset import Dataset, build_dataset, hold_out
from interfere.training.evaluation.cross_validation import Evaluation, evaluate_models
from interfere.training.evaluation.fewer_facts import FactSet
from interfere.training.evaluation.leaderboard import evaluate_tables
from interfere.training.evaluation.plots import (
    error_by_job,
    leaderboard_figure,
    make_figure_folder,
    predicted_vs_measured,
    save_leaderboard_figures,
    slowdown_heatmap,
)
from interfere.training.models.catalogue import select_models
from tests.training.worlds import additive, world


@pytest.fixture(scope="module")
def evaluations(dataset: Dataset) -> tuple[Evaluation, ...]:
    return evaluate_models(dataset, select_models("additive"))


def test_predicted_vs_measured_shows_every_test_and_its_error(
    dataset: Dataset, evaluations: tuple[Evaluation, ...]
) -> None:
    figure = predicted_vs_measured(dataset, evaluations)
    assert len(figure.axes) == 2
    for panel, one in zip(figure.axes, evaluations, strict=True):
        assert f"{one.scores.mae:.3f}" in panel.get_title()
        assert panel.get_xlabel() == "measured slowdown (×)"
        assert len(panel.collections[0].get_offsets()) == len(one.index)


def test_error_by_job_has_one_bar_per_victim_and_split_worst_on_top(
    dataset: Dataset, evaluations: tuple[Evaluation, ...]
) -> None:
    (axes,) = error_by_job(dataset, evaluations).axes
    victims = len(np.unique(dataset.rows.victim))
    assert len(axes.get_yticks()) == victims
    assert len(axes.patches) == 2 * victims
    worst = [max(axes.patches[k].get_width(), axes.patches[victims + k].get_width()) for k in range(victims)]
    assert worst == sorted(worst)


def test_the_heat_map_leaves_what_was_not_measured_empty(encoder: FeatureEncoder) -> None:
    kept, _ = hold_out(build_dataset([world(additive, 5)], encoder), frozenset({("w0", "w3")}))
    figure = slowdown_heatmap(kept, 0)
    grid = np.ma.filled(figure.axes[0].images[0].get_array(), np.nan)
    assert np.argwhere(np.isnan(grid)).tolist() == [[0, 3], [3, 0]]
    assert grid[1, 2] == pytest.approx(additive(1, 2))
    assert "cpu-core, timeslice" in figure.axes[0].get_title()


def test_figures_of_equal_slowdowns_can_be_drawn(encoder: FeatureEncoder) -> None:
    flat = build_dataset([world(lambda i, j: 1.5, 4)], encoder)
    evaluations = evaluate_models(flat, select_models("mean"), splits=("pair",))
    for figure in (
        predicted_vs_measured(flat, evaluations),
        error_by_job(flat, evaluations),
        slowdown_heatmap(flat, 0),
    ):
        picture = io.BytesIO()
        figure.savefig(picture, format="png")
        assert picture.getvalue().startswith(b"\x89PNG")


def test_a_single_unmeasured_workload_is_left_out(encoder: FeatureEncoder) -> None:
    made = build_dataset([world(additive, 5)], encoder)
    some = made.take((made.rows.victim != 5) & (made.rows.neighbour != 5))
    assert slowdown_heatmap(replace(some), 0).axes[0].images[0].get_array().shape == (4, 4)


def test_a_leaderboard_becomes_three_figures_with_every_model_in_the_first(small_folder: Path, tmp_path: Path) -> None:
    (leaderboard,) = evaluate_tables(
        [small_folder], name="a/b c", models="mean", splits=("pair",), facts=(FactSet.UTILISATION,), seeds=(0, 1)
    )
    (axes,) = leaderboard_figure(leaderboard).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.name for row in leaderboard.rows][::-1]
    assert [bar.get_width() for bar in axes.patches] == [row.scores.mae for row in leaderboard.rows][::-1]
    make_figure_folder(tmp_path / "new" / "plots")
    made = save_leaderboard_figures([leaderboard], tmp_path / "new" / "plots")
    assert [path.name for path in made] == [
        f"a-b-c_pair_utilisation_{kind}.png" for kind in ("models", "published", "jobs")
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in made)


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidInputError, match="--plots"):
        make_figure_folder(tmp_path / "file" / "plots")
    make_figure_folder(tmp_path / "plots")
    assert list((tmp_path / "plots").iterdir()) == []
