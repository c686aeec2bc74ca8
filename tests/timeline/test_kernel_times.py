"""Mean run times and gaps by kernel identity, and how far they are from the launches."""

import math

import pytest
from hypothesis import given

from interfere.data.importers.kernels.csv_exports import ORION
from interfere.errors import InvalidInputError, NotFoundError
from interfere.timeline.kernel_times import KernelTimeTable, with_prediction_errors
from interfere.timeline.records import KernelIdentity, Timeline
from interfere.timeline.timeline_builders import timeline_from_launches
from tests.data.importers.public_files import public
from tests.timeline.examples import LAW, US, kernel, line, timelines


def test_means_and_spreads_by_identity() -> None:
    job = Timeline(name="x", kernels=(kernel(10, 4, name="a"), kernel(30, 0, name="b"), kernel(20, 8, name="a")))
    table = KernelTimeTable.from_timeline(job)
    first, second = table.rows
    assert (first.identity.name, first.launches) == ("a", 2)
    assert (first.run_s, first.gap_s) == (pytest.approx(15 * US), pytest.approx(6 * US))
    assert first.run_sd_s == pytest.approx(math.sqrt(50) * US)
    assert first.gap_sd_s == pytest.approx(math.sqrt(8) * US)
    assert math.isnan(second.run_sd_s)
    fit = table.prediction_error(job)
    assert (fit.launches, fit.identities) == (3, 2)
    assert fit.total_error_frac == pytest.approx(0)
    assert fit.run_error_frac == pytest.approx(10 / 60)
    assert fit.gap_error_frac == pytest.approx(4 / 12)


@LAW
@given(job=timelines())
def test_a_table_predicts_the_total_of_the_run_that_it_was_made_of(job: Timeline) -> None:
    predicted = KernelTimeTable.from_timeline(job).predict(job)
    assert predicted.busy_s == pytest.approx(job.busy_s)
    assert predicted.solo_s == pytest.approx(job.solo_s)


def test_a_kernel_that_was_never_measured_is_refused() -> None:
    table = KernelTimeTable.from_timeline(line("x", (1, 0)))
    with pytest.raises(NotFoundError, match="other"):
        table.row(KernelIdentity(name="other"))
    with pytest.raises(NotFoundError, match="other"):
        table.predict(Timeline(name="y", kernels=(kernel(1, name="other"),)))


def test_prediction_errors_have_the_requested_spread_and_are_reproducible() -> None:
    job = line("x", *[(10, 5)] * 4_000)
    got = with_prediction_errors(job, 0.3, seed=1)
    assert got == with_prediction_errors(job, 0.3, seed=1) != with_prediction_errors(job, 0.3, seed=2)
    factors = [kernel.duration_s / (10 * US) for kernel in got.kernels]
    mean = sum(factors) / len(factors)
    spread = math.sqrt(sum((f - mean) ** 2 for f in factors) / len(factors)) / mean
    assert sorted(factors)[2_000] == pytest.approx(1.0, abs=0.03)
    assert spread == pytest.approx(0.3, abs=0.03)
    assert with_prediction_errors(job, 0.0, seed=1).solo_s == pytest.approx(job.solo_s)
    with pytest.raises(InvalidInputError, match="relative error"):
        with_prediction_errors(job, -0.1, seed=1)


def test_orions_means_are_close_where_shapes_repeat() -> None:
    """Transformers repeat their shapes; convolutions of many shapes share Orion's one name."""
    off = {}
    for path in sorted(public("orion").glob("*.csv")):
        job = timeline_from_launches(path.stem, ORION.read(path, "").launches, "v100")
        off[path.stem] = KernelTimeTable.from_timeline(job).prediction_error(job).run_error_frac
    assert off["bert_2_fwd"] < 0.03
    assert off["bert_8_fb1"] < 0.08
    assert max(off.values()) < 0.30
