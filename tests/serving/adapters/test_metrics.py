"""An adapter's metrics are Prometheus' text format, and replace their file in one step."""

from pathlib import Path

import pytest

from interfere.errors import UnfitError
from interfere.serving.adapters.metrics import AdapterMetrics


def test_metrics_are_prometheus_text(tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    metrics = AdapterMetrics("slurm", {})
    metrics.add("rounds_total", "result", "ok", by=3)
    metrics.replace("left_to_slurm", "reason", {'a "quoted"\nreason\\': 2})
    metrics.set("round_seconds", 0.25)
    metrics.write(tmp_path / "a.prom")
    found = {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families((tmp_path / "a.prom").read_text())
        for sample in family.samples
    }
    assert found == {
        ("interfere_slurm_rounds_total", ("ok",)): 3.0,
        ("interfere_slurm_left_to_slurm", ('a "quoted"\nreason\\',)): 2.0,
        ("interfere_slurm_round_seconds", ()): 0.25,
    }
    with pytest.raises(UnfitError, match="cannot be written"):
        metrics.write(tmp_path / "none" / "a.prom")
    metrics.replace("left_to_slurm", "reason", {})
    assert "quoted" not in metrics.text()
    assert [path.name for path in tmp_path.iterdir()] == ["a.prom"]
