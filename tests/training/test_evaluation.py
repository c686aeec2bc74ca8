"""Models side by side, and who wins."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from features.pair import Encoder
from interfere.data.tables import Table, write_table
from interfere.errors import InvalidInputError, TableError, UnfitError
from interfere.records import JobProfile
from tests.training.worlds import additive, world
from training.dataset import Dataset, build_dataset
from training.evaluation import champion_of, evaluate, evaluate_models, markdown
from training.facts import Facts, views
from training.gbdt import GbdtModel
from training.mlp import MlpModel
from training.models import MODELS, chosen


def test_the_additive_model_wins_an_additive_world(encoder: Encoder) -> None:
    made = build_dataset([world(additive, 8)], encoder)
    found = evaluate_models(made, chosen("mean,additive,gbdt"))
    assert [(e.split, e.model) for e in found] == [
        (s, m) for s in ("pair", "job") for m in ("mean", "additive", "gbdt")
    ]
    pair = {e.model: e.scores for e in found if e.split == "pair"}
    assert pair["additive"].mae < pair["gbdt"].mae < pair["mean"].mae
    assert pair["additive"].spearman > 0.95


def test_the_simpler_of_equal_models_is_champion(dataset: Dataset) -> None:
    mean, better = evaluate_models(dataset, chosen("mean,additive"), splits=("pair",))
    same = replace(better, scores=mean.scores)
    assert champion_of([same, mean]) == "mean"
    assert champion_of([better, mean]) == "additive"


def test_the_champion_is_best_over_both_splits_not_on_one(dataset: Dataset) -> None:
    found = evaluate_models(dataset, chosen("mean,additive,gbdt"))
    total = {m: np.mean([e.scores.mae for e in found if e.model == m]) for m in ("mean", "additive", "gbdt")}
    assert champion_of(found) == min(total, key=total.__getitem__)
    assert champion_of(found) != "mean"


def test_residuals_are_out_of_fold(dataset: Dataset) -> None:
    (one,) = evaluate_models(dataset, chosen("additive"), splits=("pair",))
    inside = np.abs(dataset.log_slowdown - MODELS["additive"].fit(dataset, 0).predict(dataset.rows)).mean()
    assert np.abs(one.residual(dataset)).mean() > inside
    assert sorted(one.index) == list(range(len(dataset)))


def test_the_same_seed_gives_identical_metrics(small_dataset: Dataset) -> None:
    models = (GbdtModel(rounds=40), MlpModel(members=2, epochs=40))
    first, again, other = (
        [e.scores for e in evaluate_models(small_dataset, models, splits=("pair",), seed=seed)] for seed in (1, 1, 2)
    )
    assert first == again != other


def test_evaluate_reads_tables_and_writes_nothing(small_folder: Path) -> None:
    before = sorted(small_folder.parent.rglob("*"))
    lines: list[str] = []
    found = evaluate([small_folder], models="mean", splits=("pair",), facts=(Facts.ALL,), report=lines.append)[
        Facts.ALL
    ]
    assert sorted(small_folder.parent.rglob("*")) == before
    assert len(lines) == 2
    text = markdown([(e.split, e.model, e.scores) for e in found])
    assert f"| pair | mean | {found[0].scores.mae:.4f} |" in text


def test_bad_requests_are_refused(small_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="choose among mean, additive, gbdt, mlp"):
        evaluate([small_folder], models="mean,oracle")
    with pytest.raises(TableError):
        evaluate([tmp_path / "nowhere"])
    tiny = tmp_path / "tiny"
    tiny.mkdir()
    write_table(tiny, world(additive, 3))
    with pytest.raises(UnfitError, match="at least 10"):
        evaluate([tiny])


def test_fewer_facts_are_scored_beside_all_of_them(small: Table, small_folder: Path, tmp_path: Path) -> None:
    traced = replace(small, jobs=tuple(_as_if_traced(job) for job in small.jobs))
    write_table(tmp_path / "traced", traced)
    measured = evaluate([small_folder], models="mean,gbdt", splits=("pair",))
    found = evaluate([tmp_path / "traced"], models="mean,gbdt", splits=("pair",))
    assert list(measured) == [Facts.ALL, Facts.UTILISATION]  # nothing static to leave out
    assert list(found) == list(Facts)
    mean, gbdt = ({name: made[k].scores.mae for name, made in found.items()} for k in (0, 1))
    assert len(set(mean.values())) == 1  # reads no fact
    assert len(set(gbdt.values())) == 3


def test_a_view_shows_only_its_facts(small: Table) -> None:
    traced = replace(small, jobs=tuple(_as_if_traced(job) for job in small.jobs))
    everything, measured, poor = views([traced])
    job = traced.jobs[0]
    shown = {
        view.facts: dict(
            zip(
                view.encoder.job_names,
                view.encoder.encode_jobs([view.tables[0].jobs[0]], job.device_type, "timeslice")[0].tolist(),
                strict=True,
            )
        )
        for view in (everything, measured, poor)
    }
    assert shown[Facts.ALL]["log_static_step_time_s"] == pytest.approx(math.log(0.5))
    assert math.isnan(shown[Facts.MEASURED]["log_static_step_time_s"])
    assert shown[Facts.MEASURED]["busy_frac"] == pytest.approx(job.busy_frac)
    assert math.isnan(shown[Facts.UTILISATION]["busy_frac"])
    assert shown[Facts.UTILISATION]["log_step_time_s"] == pytest.approx(math.log(job.step_time_s))
    assert shown[Facts.UTILISATION]["gpu_util_frac"] == pytest.approx(0.25)


def _as_if_traced(job: JobProfile) -> JobProfile:
    """The job as an import leaves it: measured facts, and static ones that `without_static` knows."""
    return replace(
        job, source="cpu+static", gpu_util_frac=0.25, static_step_time_s=0.5, static_memory_peak_bytes=1e8,
        memory_model_bytes=len(job.workload) * 1e7,
    )  # fmt: skip
