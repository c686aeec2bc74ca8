"""An ablation shows the facts of its fact set and no others."""

import math
from dataclasses import replace

import pytest

from interfere.data.tables import Table
from interfere.training.evaluation.fewer_facts import FactSet, ablate_facts
from tests.training.worlds import as_if_traced


def test_an_ablation_shows_only_its_facts(small: Table) -> None:
    traced = replace(small, jobs=tuple(as_if_traced(job) for job in small.jobs))
    everything, measured, poor = ablate_facts([traced])
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
    assert shown[FactSet.ALL]["log_static_step_time_s"] == pytest.approx(math.log(0.5))
    assert math.isnan(shown[FactSet.MEASURED]["log_static_step_time_s"])
    assert shown[FactSet.MEASURED]["busy_frac"] == pytest.approx(job.busy_frac)
    assert math.isnan(shown[FactSet.UTILISATION]["busy_frac"])
    assert shown[FactSet.UTILISATION]["log_step_time_s"] == pytest.approx(math.log(job.step_time_s))
    assert shown[FactSet.UTILISATION]["gpu_util_frac"] == pytest.approx(0.25)
