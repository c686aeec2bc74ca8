"""Copies of a model in slices, on models made by a formula: what is believed, what is advised, what changes it."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from interfere.commands.advise.copies import app
from interfere.data.importers.parvagpu import COLUMNS, Configuration
from interfere.errors import InvalidInputError, TableError
from interfere.predict.copies.advice import CopiesModel, ThroughputOf, advise_copies, advise_measured_model, fit_process
from interfere.predict.copies.measurements import COPIES, ModelMeasurements, read_measurements

SLICES, BATCHES = (1, 2, 3, 4, 7), (1, 4, 16, 64)


def model(name: str, host_s: float, work_s: float) -> ModelMeasurements:
    """A batch takes its time on the host, and its work ÷ the slice where the copies keep the slice busy."""

    def latency_s(size: int, batch: int, copies: int) -> float:
        work = work_s * batch**0.9 / size
        return max(host_s + work, copies * work)

    return ModelMeasurements(
        name=name,
        throughput={
            Configuration(size, batch, n): 0.0 if n * batch > 200 * size else batch / latency_s(size, batch, n)
            for size in SLICES
            for batch in BATCHES
            for n in COPIES
        },
    )


OTHERS = tuple(model(f"m{k}", 0.002 + 0.001 * k, 0.0004 * 1.7**k) for k in range(5))
OWN = model("own", 0.0035, 0.0011)


@pytest.fixture(scope="module")
def copies() -> CopiesModel:
    return CopiesModel(OTHERS)


def test_one_copy_is_certain_and_several_are_near_the_truth(copies: CopiesModel) -> None:
    belief = copies.belief(OWN.of_one_copy(), 4)
    errors = []
    for k, configuration in enumerate(belief.configurations):
        if configuration.copies == 1:
            assert belief.covariance[k, k] == 0.0
            assert belief.median_s[k] == pytest.approx(OWN.latency_s(configuration))
        else:
            errors.append(abs(belief.median_s[k] / OWN.latency_s(configuration) - 1))
    assert np.mean(errors) < 0.10


def test_a_measured_configuration_is_certain_and_tells_of_its_neighbours(copies: CopiesModel) -> None:
    belief = copies.belief(OWN.of_one_copy(), 4)
    measured, beside = Configuration(2, 4, 3), belief.configurations.index(Configuration(2, 4, 4))
    k = belief.configurations.index(measured)
    after = belief.given(measured, 1.2 * float(belief.median_s[k]))
    assert after.median_s[k] == pytest.approx(1.2 * belief.median_s[k])
    assert after.covariance[k, k] == 0.0
    assert after.covariance[beside, beside] < belief.covariance[beside, beside]


@pytest.mark.parametrize("throughput_of", ThroughputOf)
def test_what_is_advised_keeps_the_target_and_a_tighter_target_costs_throughput(
    copies: CopiesModel, throughput_of: ThroughputOf
) -> None:
    belief = copies.belief(OWN.of_one_copy(), 4)
    fastest_s = min(OWN.latency_s(each) for each in belief.configurations)
    loose, tight = (advise_copies(belief, ratio * fastest_s, throughput_of) for ratio in (4.0, 1.05))
    assert OWN.latency_s(loose.configuration) <= 4.0 * fastest_s
    assert tight.throughput <= loose.throughput
    assert loose.miss_probability < 0.5
    impossible = advise_copies(belief, fastest_s / 100)
    assert (impossible.miss_probability, impossible.good_probability) == (1.0, 0.0)


@pytest.mark.parametrize("risk", [0.0, 0.02, 0.3])
def test_advice_keeps_to_the_risk_and_a_smaller_risk_never_brings_more_throughput(
    copies: CopiesModel, risk: float
) -> None:
    belief = copies.belief(OWN.of_one_copy(), 4)
    target_s = 1.7 * min(OWN.latency_s(each) for each in belief.configurations)
    careful, careless = (advise_copies(belief, target_s, risk=each) for each in (risk, 1.0))
    assert careful.miss_probability <= risk
    assert careful.good_probability <= careless.good_probability
    beyond = [advise_copies(belief, 0.9 * target_s / 1.7, risk=each).configuration for each in (0.0, risk)]
    assert beyond[0] == beyond[1]  # nothing keeps either risk: the configuration that misses least probably


def test_advising_measuring_and_advising_again_ends_at_the_best(copies: CopiesModel) -> None:
    belief = copies.belief(OWN.of_one_copy(), 16)
    target_s = 1.5 * min(OWN.latency_s(each) for each in belief.configurations)
    best = max(
        each.copies * each.batch / OWN.latency_s(each)
        for each in belief.configurations
        if OWN.latency_s(each) <= target_s
    )
    advice = advise_copies(belief, target_s)
    while advice.measure is not None:
        belief = belief.given(advice.measure, OWN.latency_s(advice.measure))
        advice = advise_copies(belief, target_s)
    chosen = advice.configuration
    assert chosen.copies * chosen.batch / OWN.latency_s(chosen) >= 0.95 * best
    assert advice.good_probability == 1.0


def test_every_configuration_is_told_with_its_slowdown_and_interval(copies: CopiesModel) -> None:
    belief = copies.belief(OWN.of_one_copy(), 4)
    outlooks = {each.configuration: each for each in advise_copies(belief, math.inf).outlooks}
    assert set(outlooks) == set(belief.configurations)
    alone, beside_four = outlooks[Configuration(2, 4, 1)], outlooks[Configuration(2, 4, 5)]
    assert (alone.slowdown, alone.lower_s, alone.upper_s) == (1.0, alone.latency_s, alone.latency_s)
    assert beside_four.slowdown == pytest.approx(beside_four.latency_s / alone.latency_s)
    assert beside_four.lower_s < beside_four.latency_s < beside_four.upper_s
    without = belief.given(Configuration(2, 4, 5), math.inf)
    unfit = next(each for each in advise_copies(without, 1.0).outlooks if each.configuration == (2, 4, 5))
    assert (unfit.latency_s, unfit.good_probability) == (math.inf, 0.0)


def test_what_does_not_fit_is_not_advised(copies: CopiesModel) -> None:
    belief = copies.belief(OWN.of_one_copy(), 4)
    advice = advise_copies(belief, math.inf)
    without = belief.given(advice.configuration, math.inf)
    assert advise_copies(without, math.inf).configuration != advice.configuration


def test_a_fitted_process_finds_a_smooth_function_and_knows_what_it_does_not_know() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (80, 2))
    process = fit_process(rows, np.sin(3 * rows[:, 0]) + 0.01 * rng.standard_normal(80))
    at = np.array([[0.3, 0.0], [9.0, 9.0]])
    mean, covariance = process.predict(at, return_cov=True)
    assert mean[0] == pytest.approx(math.sin(0.9), abs=0.03)
    assert covariance[1, 1] > 20 * covariance[0, 0]


def write(path: Path, model_: ModelMeasurements, *, only_one_copy: bool = False) -> None:
    rows = [
        f"{key.slice_size},{key.batch},{key.copies},{rate!r},{key.batch / rate if rate else 0!r}"
        for key, rate in model_.throughput.items()
        if (key.copies == 1 or not only_one_copy) and key.batch < 16
    ]
    path.write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")


def test_the_command_advises_from_files_and_a_measured_row_counts(tmp_path: Path) -> None:
    folder = tmp_path / "others"
    folder.mkdir()
    for other in OTHERS[:2]:
        write(folder / f"{other.name}.csv", other)
    own = tmp_path / "own.csv"
    write(own, OWN, only_one_copy=True)
    options = [str(own), "--data", str(folder), "--batch", "4", "--latency-target", "0.008"]
    first = json.loads(CliRunner().invoke(app, [*options, "--json"]).output)
    assert first["measure"] is not None
    assert len(first["outlooks"]) == len(SLICES) * len(COPIES)
    measured = Configuration(**first["measure"])
    row = (measured.slice_size, measured.batch, measured.copies, OWN.throughput[measured], OWN.latency_s(measured))
    own.write_text(own.read_text() + ",".join(map(repr, row)) + "\n")
    assert json.loads(CliRunner().invoke(app, [*options, "--json"]).output)["measure"] != first["measure"]
    text = CliRunner().invoke(app, options).output
    assert "requests/s" in text
    assert "no configuration" not in text
    with pytest.raises(TableError, match="no row of one copy"):
        advise_measured_model(OWN, read_measurements(folder), batch=3, target_s=1.0)
    with pytest.raises(TableError, match="no measurement of several copies"):
        advise_measured_model(OWN, read_measurements(own), batch=4, target_s=1.0)


def test_a_target_that_nothing_keeps_is_said_and_one_that_is_no_time_refused(tmp_path: Path) -> None:
    folder, own = tmp_path / "others", tmp_path / "own.csv"
    folder.mkdir()
    write(folder / "m0.csv", OTHERS[0])
    write(own, OWN, only_one_copy=True)
    options = [str(own), "--data", str(folder), "--batch", "4", "--latency-target"]
    assert "no configuration is expected to keep" in CliRunner().invoke(app, [*options, "1e-6"]).output
    for wrong in ("0", "-1", "nan", "inf"):
        with pytest.raises(InvalidInputError, match="latency target"):
            CliRunner().invoke(app, [*options, wrong], catch_exceptions=False)
    with pytest.raises(InvalidInputError, match="risk"):
        CliRunner().invoke(app, [*options, "1", "--risk", "1.5"], catch_exceptions=False)
