"""The laws of `interfere.protocols.Predictor`: subclass, give `world`, and every implementation is held to them.

Matrices here are small; that large ones of the served model agree with its pairs is tested with the model itself.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from interfere.errors import UnfitError
from interfere.protocols import Predictor
from interfere.records import JobProfile, MatrixBatch, MatrixPrediction, PairBatch, Prediction, Source
from interfere.sharing_modes import SharingMode

LEVELS = (0.025, 0.05, 0.2, 0.5, 0.8, 0.95, 0.975)
UNKNOWN_DEVICE_TYPE = "no-such-device"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorWorld:
    """A predictor, what may be asked of it, and how closely it claims that its answers agree."""

    predictor: Predictor
    jobs: tuple[JobProfile, ...]  # of distinct workloads, at least four
    device_type: str
    mode: SharingMode
    abstains: bool = False  # are there pairs of these jobs without a prediction?
    # Relative tolerances between answers to the same question. 0: the same bits.
    rtol_between_batches: float = 0.0  # of a pair among other pairs, or in another order
    rtol_of_medians: float = 1e-6  # of matrices (float32) beside pairs (float64)
    rtol_of_quantiles: float = 1e-6  # of quantiles of matrices at 5 % and 95 % beside the intervals of pairs
    # Ordered pairs of workloads with a measured interval: pairs report the 95 % interval of the measurement, where
    # matrices interpolate it to 5 % and 95 %.
    with_measured_interval: frozenset[tuple[str, str]] = frozenset()
    rtol_of_measured_intervals: float = 0.01

    def all_pairs(self, *, device_type: str = "", allow_extrapolation: bool = False) -> PairBatch:
        """Every job beside every job, itself included; row by row."""
        n = len(self.jobs)
        return PairBatch(
            jobs=self.jobs,
            victim=np.repeat(np.arange(n), n),
            neighbour=np.tile(np.arange(n), n),
            device_type=device_type or self.device_type,
            mode=self.mode,
            allow_extrapolation=allow_extrapolation,
        )

    def matrix(
        self,
        victims: tuple[JobProfile, ...] | None = None,
        neighbours: tuple[JobProfile, ...] | None = None,
        *,
        device_type: str = "",
        allow_extrapolation: bool = False,
    ) -> MatrixBatch:
        """All jobs beside all jobs, or those given."""
        return MatrixBatch(
            victims=self.jobs if victims is None else victims,
            neighbours=self.jobs if neighbours is None else neighbours,
            device_type=device_type or self.device_type,
            mode=self.mode,
            allow_extrapolation=allow_extrapolation,
        )


def assert_same(first: Prediction, second: Prediction, rtol: float) -> None:
    """Both predictions answer every pair alike."""
    for name in ("median", "lower", "upper", "feasibility"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=rtol, err_msg=name)
    assert first.source == second.source
    assert first.reason == second.reason


def assert_complete(answer: Prediction, batch: PairBatch) -> None:
    """Shapes and types of an answer; NaN and a reason exactly where a pair abstains."""
    p = len(batch)
    for name in ("median", "lower", "upper", "feasibility"):
        values = getattr(answer, name)
        assert values.shape == (p,), name
        assert values.dtype == np.float64, name
    assert len(answer.source) == len(answer.reason) == p
    abstained = np.array([source is Source.ABSTAINED for source in answer.source], dtype=bool)
    for values in (answer.median, answer.lower, answer.upper):
        np.testing.assert_array_equal(np.isnan(values), abstained)
    assert [reason != "" for reason in answer.reason] == abstained.tolist()


class PredictorLaws:
    """Every test gets `world`: a predictor that knows one domain, and jobs there."""

    @pytest.fixture
    def world(self) -> PredictorWorld:
        raise NotImplementedError

    def test_it_has_a_version_and_knows_its_own_domain(self, world: PredictorWorld) -> None:
        assert world.predictor.version
        assert world.predictor.knows(world.device_type, world.mode) == ""
        assert UNKNOWN_DEVICE_TYPE in world.predictor.knows(UNKNOWN_DEVICE_TYPE, world.mode)

    def test_pairs_are_answered_completely_or_abstain_with_a_reason(self, world: PredictorWorld) -> None:
        batch = world.all_pairs()
        answer = world.predictor.predict_pairs(batch)
        assert_complete(answer, batch)
        assert (Source.ABSTAINED in answer.source) == world.abstains
        assert set(answer.source) - {Source.ABSTAINED}

    def test_intervals_hold_the_median(self, world: PredictorWorld) -> None:
        answer = world.predictor.predict_pairs(world.all_pairs())
        known = np.isfinite(answer.median)
        assert (answer.lower[known] > 0).all()
        assert (answer.lower[known] <= answer.median[known]).all()
        assert (answer.median[known] <= answer.upper[known]).all()
        assert ((answer.feasibility >= 0) & (answer.feasibility <= 1) | np.isnan(answer.feasibility)).all()

    def test_answers_are_in_the_order_of_the_pairs(self, world: PredictorWorld) -> None:
        batch = world.all_pairs()
        order = np.random.default_rng(0).permutation(len(batch))
        answer = world.predictor.predict_pairs(batch)
        permuted = world.predictor.predict_pairs(
            replace(batch, victim=batch.victim[order], neighbour=batch.neighbour[order])
        )
        expected = Prediction(
            **{name: getattr(answer, name)[order] for name in ("median", "lower", "upper", "feasibility")},
            source=tuple(answer.source[k] for k in order),
            reason=tuple(answer.reason[k] for k in order),
        )
        assert_same(permuted, expected, world.rtol_between_batches)

    def test_relabelling_jobs_changes_no_answer(self, world: PredictorWorld) -> None:
        batch, n = world.all_pairs(), len(world.jobs)
        order = np.random.default_rng(1).permutation(n)
        place = np.argsort(order)  # where each job stands now
        relabelled = replace(
            batch,
            jobs=tuple(world.jobs[k] for k in order),
            victim=place[batch.victim],
            neighbour=place[batch.neighbour],
        )
        first, second = (world.predictor.predict_pairs(each) for each in (batch, relabelled))
        assert_same(first, second, world.rtol_between_batches)

    def test_a_pair_by_itself_gets_the_answer_that_it_gets_among_others(self, world: PredictorWorld) -> None:
        batch = world.all_pairs()
        answer = world.predictor.predict_pairs(batch)
        for k in range(0, len(batch), 3):
            i, j = int(batch.victim[k]), int(batch.neighbour[k])
            single = replace(batch, jobs=(world.jobs[i], world.jobs[j]), victim=np.array([0]), neighbour=np.array([1]))
            alone = world.predictor.predict_pairs(single)
            for name in ("median", "lower", "upper"):
                np.testing.assert_allclose(
                    getattr(alone, name), getattr(answer, name)[k : k + 1], rtol=world.rtol_between_batches
                )
            assert (alone.source[0], alone.reason[0]) == (answer.source[k], answer.reason[k])

    def test_a_job_beside_itself_is_answered(self, world: PredictorWorld) -> None:
        n = len(world.jobs)
        batch = replace(world.all_pairs(), victim=np.arange(n), neighbour=np.arange(n))
        assert_complete(world.predictor.predict_pairs(batch), batch)

    def test_asking_changes_nothing(self, world: PredictorWorld) -> None:
        batch, matrix = world.all_pairs(), world.matrix()
        first, first_matrix = world.predictor.predict_pairs(batch), world.predictor.predict_matrix(matrix)
        kept = replace(first, median=first.median.copy()), first_matrix.victim_slowdown.copy()
        for level in LEVELS:
            world.predictor.predict_matrix(matrix, quantile=level)
        assert_same(world.predictor.predict_pairs(batch), kept[0], 0.0)
        np.testing.assert_array_equal(world.predictor.predict_matrix(matrix).victim_slowdown, kept[1])

    @pytest.mark.parametrize("victims", [0, 3])
    @pytest.mark.parametrize("neighbours", [0, 3])
    def test_a_matrix_has_the_shape_of_its_batch(self, world: PredictorWorld, victims: int, neighbours: int) -> None:
        batch = world.matrix(world.jobs[:victims], world.jobs[:neighbours])
        answer = world.predictor.predict_matrix(batch)
        assert batch.shape == (victims, neighbours)
        for values, dtype in (
            (answer.victim_slowdown, np.float32),
            (answer.neighbour_slowdown, np.float32),
            (answer.feasible, np.uint8),
        ):
            assert values.shape == batch.shape
            assert values.dtype == dtype
        assert answer.feasibility is None or answer.feasibility.shape == batch.shape

    def test_an_empty_list_of_pairs_has_an_empty_answer(self, world: PredictorWorld) -> None:
        none = np.zeros(0, dtype=np.int64)
        for jobs in (world.jobs, ()):
            batch = replace(world.all_pairs(), jobs=jobs, victim=none, neighbour=none)
            assert_complete(world.predictor.predict_pairs(batch), batch)

    def test_both_directions_of_a_matrix_are_the_same_pairs(self, world: PredictorWorld) -> None:
        rows, columns = world.jobs[:2], world.jobs[1:]
        for level in (0.5, 0.95):
            ahead = world.predictor.predict_matrix(world.matrix(rows, columns), quantile=level)
            back = world.predictor.predict_matrix(world.matrix(columns, rows), quantile=level)
            np.testing.assert_allclose(ahead.victim_slowdown, back.neighbour_slowdown.T, rtol=world.rtol_of_medians)
            np.testing.assert_allclose(ahead.neighbour_slowdown, back.victim_slowdown.T, rtol=world.rtol_of_medians)

    @pytest.mark.parametrize(
        ("level", "of_pairs"),
        [(0.5, lambda answer: answer.median), (0.05, lambda answer: answer.lower), (0.95, lambda answer: answer.upper)],
        ids=["median", "lower", "upper"],
    )
    @pytest.mark.parametrize("allow_extrapolation", [False, True])
    def test_a_matrix_agrees_with_pairs(
        self,
        world: PredictorWorld,
        level: float,
        of_pairs: Callable[[Prediction], np.ndarray],
        allow_extrapolation: bool,
    ) -> None:
        pairs = of_pairs(world.predictor.predict_pairs(world.all_pairs(allow_extrapolation=allow_extrapolation)))
        answer = world.predictor.predict_matrix(world.matrix(allow_extrapolation=allow_extrapolation), quantile=level)
        loose = np.zeros(len(pairs), dtype=bool) if level == 0.5 else self._have_measured_intervals(world)
        close_rtol = world.rtol_of_medians if level == 0.5 else world.rtol_of_quantiles
        for matrix in (answer.victim_slowdown.ravel(), answer.neighbour_slowdown.T.ravel()):
            np.testing.assert_allclose(matrix[~loose], pairs[~loose], rtol=close_rtol)
            np.testing.assert_allclose(matrix[loose], pairs[loose], rtol=world.rtol_of_measured_intervals)

    def _have_measured_intervals(self, world: PredictorWorld) -> np.ndarray:
        """bool[p], for `all_pairs`."""
        names = [job.workload for job in world.jobs]
        return np.array(
            [(victim, neighbour) in world.with_measured_interval for victim in names for neighbour in names]
        )

    def test_quantiles_of_a_matrix_rise_with_their_level(self, world: PredictorWorld) -> None:
        answers: list[MatrixPrediction] = [
            world.predictor.predict_matrix(world.matrix(), quantile=level) for level in LEVELS
        ]
        for lower, higher in itertools.pairwise(answers):
            for name in ("victim_slowdown", "neighbour_slowdown"):
                below, above = getattr(lower, name), getattr(higher, name)
                np.testing.assert_array_equal(np.isnan(below), np.isnan(above))
                known = np.isfinite(below)
                assert (below[known] <= above[known]).all(), name

    def test_an_unknown_domain_is_refused_with_the_reason(self, world: PredictorWorld) -> None:
        batch = world.all_pairs(device_type=UNKNOWN_DEVICE_TYPE)
        answer = world.predictor.predict_pairs(batch)
        assert_complete(answer, batch)
        assert set(answer.source) == {Source.ABSTAINED}
        assert set(answer.reason) == {world.predictor.knows(UNKNOWN_DEVICE_TYPE, world.mode)}
        with pytest.raises(UnfitError, match=UNKNOWN_DEVICE_TYPE):
            world.predictor.predict_matrix(world.matrix(device_type=UNKNOWN_DEVICE_TYPE))

    def test_extrapolation_answers_an_unknown_domain(self, world: PredictorWorld) -> None:
        batch = world.all_pairs(device_type=UNKNOWN_DEVICE_TYPE, allow_extrapolation=True)
        answer = world.predictor.predict_pairs(batch)
        assert_complete(answer, batch)
        assert np.isfinite(answer.median).any()
        matrix = world.predictor.predict_matrix(world.matrix(device_type=UNKNOWN_DEVICE_TYPE, allow_extrapolation=True))
        np.testing.assert_allclose(matrix.victim_slowdown.ravel(), answer.median, rtol=world.rtol_of_medians)
