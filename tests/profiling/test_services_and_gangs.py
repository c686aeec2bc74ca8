"""Services and gangs are measured on real cores; their rows are worked out by hand where no clock is needed."""

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interfere.data.quality import repeatabilities, table_quality
from interfere.data.tables import read_table
from interfere.errors import InvalidInputError, UnfitError
from interfere.profiling import affinity
from interfere.profiling.campaign_table import CampaignLabels, latency_rows, write_campaign_table
from interfere.profiling.measurement_log import MeasurementLog
from interfere.profiling.measurer import measure
from interfere.profiling.slices import Recording, Slice, side_slices
from interfere.profiling.trace import latencies_s, whole_steps
from interfere.profiling.workload_profiler import WorkerPool, WorkloadConfig
from interfere.records import METRICS, JobProfile, MeasuredBlock, PairStatus
from interfere.sharing_modes import SharingMode
from tests.profiling.processes import all_gone, descendants
from tests.profiling.sample_blocks import SIDE_SLICE, block, joined, steady

LABELS = CampaignLabels(device_type="cpu-core", device_name="x", campaign="t", source="cpu")
SERVICE, BUSY, GANG = "json-api@1200", "tests.profiling.sample_workloads:BUSY", "vae-train-gang"
needs_two_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="a gang needs two cores"
)


def with_latencies(made: MeasuredBlock, alone_s: list[float], shared_s: list[float]) -> MeasuredBlock:
    slices = (
        replace(SIDE_SLICE, latencies_s=tuple(alone_s)),
        *(replace(SIDE_SLICE, alone=False, latencies_s=tuple(part)) for part in np.array_split(shared_s, 4)),
        replace(SIDE_SLICE, alone=False, latencies_s=(9.0,) * 99, counted=False),
        replace(SIDE_SLICE, alone=False, latencies_s=(9.0,) * 99, taken_s=0.1 * SIDE_SLICE.wall_s),
    )
    return replace(made, sides=(replace(made.sides[0], slices=slices), made.sides[1]))


def test_latency_rows_compare_pooled_quantiles_and_leave_disturbed_slices_out() -> None:
    rng = np.random.default_rng(0)
    alone, beside_b, beside_c = (rng.lognormal(mean, 0.5, 1000).tolist() for mean in (-7, -6, -7))
    pairs = [
        [with_latencies(block("s", "b", (1.0, 1.3)), alone[:500], beside_b)],
        [with_latencies(block("s", "c", (1.0, 1.1)), alone[500:], beside_c)],
    ]
    rows = {(row.neighbour, row.metric): row for row in latency_rows([(LABELS, pairs)])}
    assert {row.victim for row in rows.values()} == {"s"}, "b and c answer no requests"
    assert len(rows) == 4
    for metric, q in (("latency_p50", 0.5), ("latency_p99", 0.99)):
        expected = np.quantile(beside_b, q) / np.quantile(alone, q)
        assert rows["b", metric].slowdown == pytest.approx(expected), "alone is pooled over all blocks"
        assert rows["b", metric].lower < math.e < rows["b", metric].upper
        assert rows["c", metric].lower < 1.0 < rows["c", metric].upper
    wide, narrow = (rows["b", metric] for metric in ("latency_p99", "latency_p50"))
    assert wide.upper / wide.lower > narrow.upper / narrow.lower


def test_a_service_of_tokens_has_rows_of_ttft_and_tpot_and_others_have_none() -> None:
    alone_s, beside_s = [0.001, 0.003] * 250, [0.004, 0.005] * 250

    def slices(times: str, made: MeasuredBlock) -> MeasuredBlock:
        timed = [
            replace(SIDE_SLICE, alone=alone, **{times: tuple(alone_s if alone else beside_s)})
            for alone in (True, False)
        ]
        return replace(made, sides=(replace(made.sides[0], slices=tuple(timed)), made.sides[1]))

    pairs = [[slices("ttft_s", block("chat", "b", (1.0, 1.3)))], [slices("tpot_s", block("story", "b", (1.0, 1.3)))]]
    rows = {(row.victim, row.metric): row.slowdown for row in latency_rows([(LABELS, pairs)])}
    ratio = np.quantile(beside_s, 0.99) / np.quantile(alone_s, 0.99)
    assert {key for key in rows if key[1].endswith("p99")} == {("chat", "ttft_p99"), ("story", "tpot_p99")}
    assert len(rows) == 4
    assert rows["chat", "ttft_p99"] == rows["story", "tpot_p99"] == pytest.approx(ratio)
    assert rows["chat", "ttft_p50"] == pytest.approx(np.quantile(beside_s, 0.5) / np.quantile(alone_s, 0.5))


def test_campaigns_that_disagree_widen_all_intervals() -> None:
    rng = np.random.default_rng(1)
    alone = rng.lognormal(-7, 0.5, 1000).tolist()

    def draw(shift: float) -> list[float]:
        return rng.lognormal(-6 + shift, 0.5, 1000).tolist()

    def campaigns(shift: float) -> list[tuple[CampaignLabels, list[list[MeasuredBlock]]]]:
        made = []
        for number in range(2):
            pairs = [
                [
                    with_latencies(
                        block("s", name, (1.0, 1.3)), alone, rng.lognormal(-6 + number * shift, 0.5, 1000).tolist()
                    )
                ]
                for name in "bcdefghi"
            ]
            made.append((replace(LABELS, campaign=str(number)), pairs))
        return made

    def width(shift: float) -> float:
        medians = [row for row in latency_rows(campaigns(shift)) if row.metric == "latency_p50"]
        assert len(medians) == 16
        return float(np.mean([math.log(row.upper / row.lower) for row in medians]))

    assert width(0.5) > 2 * width(0.0)


def test_the_profile_of_a_service_says_its_latency_alone(tmp_path: Path) -> None:
    alone = np.random.default_rng(0).lognormal(-7, 0.5, 1000).tolist()
    pairs = [
        [with_latencies(block("s", "b", (1.0, 1.3)), alone[:500], [0.001] * 500)],
        [with_latencies(block("s", "c", (1.0, 1.1)), alone[500:], [0.001] * 500)],
        [with_latencies(block("few", "c", (1.0, 1.1)), alone[:150], [0.001] * 150)],
    ]
    names = ("s", "few", "b", "c")
    profiles = [JobProfile(workload=name, device_type="cpu-core", step_time_s=0.01, source="cpu") for name in names]
    write_campaign_table(tmp_path / "t", profiles, pairs, LABELS, note="")
    found = {job.workload: (job.latency_p50_s, job.latency_p99_s) for job in read_table(tmp_path / "t").jobs}
    assert found["s"] == pytest.approx(np.quantile(alone, [0.5, 0.99]).tolist())
    assert math.isfinite(found["few"][0])
    assert math.isnan(found["few"][1]), "150 requests tell no p99"
    assert np.isnan([*found["b"], *found["c"]]).all()


def test_too_few_requests_tell_no_p99() -> None:
    made = with_latencies(block("s", "b", (1.0, 1.3)), [0.001] * 500, [0.002 + 1e-6 * k for k in range(150)])
    median, tail = latency_rows([(LABELS, [[made]])])
    assert median.status is PairStatus.OK
    assert (tail.status, tail.reason) == (PairStatus.UNSTABLE, "150 undisturbed requests tell no 99% quantile")


def test_a_service_that_was_always_disturbed_has_rows_that_say_so() -> None:
    made = with_latencies(block("s", "b", (1.0, 1.3)), [0.001] * 500, [0.002] * 500)
    slices = tuple(replace(each, taken_s=0.5 * each.wall_s) for each in made.sides[0].slices)
    disturbed = replace(made, sides=(replace(made.sides[0], slices=slices), made.sides[1]))
    rows = latency_rows([(LABELS, [[disturbed]])])
    assert [(row.status, row.passes) for row in rows] == [(PairStatus.UNSTABLE, ())] * 2
    assert rows[0].reason == "0 undisturbed requests tell no 50% quantile"


def test_requests_count_by_their_arrival_whenever_they_are_answered() -> None:
    requests = np.array([(1.0, 1.1), (1.5, 2.5), (2.0, 2.1)])
    assert latencies_s(requests, 1.2, 2.0).tolist() == [1.0]


def test_what_third_processes_took_from_any_rank_is_subtracted_from_a_gang() -> None:
    def trace(cpu_frac: float) -> np.ndarray:
        return joined(steady(0.0, 1.0, step_s=0.01, cpu_frac=cpu_frac))

    second = Recording(name="gang", trace=trace(0.8), core=1)
    gang = Recording(name="gang", trace=trace(1.0), core=0, further_ranks=(second,))
    (alone,) = side_slices(0, [gang], [Slice(running=frozenset({0}), start_s=0.0, end_s=1.0)])
    assert alone.taken_s == pytest.approx(0.2 * alone.wall_s, rel=0.01)
    neighbour = Recording(name="job", trace=trace(0.2), core=1)
    beside = Slice(running=frozenset({0, 1}), start_s=0.0, end_s=1.0)
    (shared,) = side_slices(0, [gang, neighbour], [beside])
    assert shared.taken_s < 0.01, "the neighbour of the second rank had the rest"


def test_every_round_is_a_campaign_with_rows_of_its_own(tmp_path: Path) -> None:
    blocks = [
        [block("a", "b", (1.5, 1.2), pass_index=0), block("a", "b", (1.8, 1.2), pass_index=1)],
        [block("a", "c", (2.0, 1.0), pass_index=0), block("a", "c", (2.2, 1.0), pass_index=1)],
        [block("b", "c", (1.1, 1.6), pass_index=0)],
    ]
    profiles = [JobProfile(workload=name, device_type="cpu-core", step_time_s=0.01, source="cpu") for name in "abc"]
    table = write_campaign_table(tmp_path / "t", profiles, blocks, LABELS, note="", passes_of_campaign=1)
    assert [row.campaign for row in table.pairs] == ["t-1"] * 6 + ["t-2"] * 4
    a_beside_b = [row.passes[0] for row in table.pairs if (row.victim, row.neighbour) == ("a", "b")]
    assert a_beside_b == pytest.approx([1.5, 1.8])
    (found,) = repeatabilities(read_table(tmp_path / "t"))
    assert (found.earlier, found.later, found.rows) == ("t-1", "t-2", 4)
    assert found.median == pytest.approx(0.05)
    assert 0.1 < found.p90 < 0.2
    assert table_quality(table).icc_rows == 4, "the blocks of two campaigns are repeats"
    assert "measured again (t-2 against t-1): |ratio - 1| median 5.0%" in (tmp_path / "t" / "card.md").read_text()


@pytest.mark.parametrize(("service", "metrics"), [(SERVICE, METRICS[:3]), ("gpt-chat@700", METRICS)])
def test_a_service_is_measured_twice_beside_a_busy_job(service: str, metrics: tuple[str, ...], tmp_path: Path) -> None:
    config = WorkloadConfig(
        out=tmp_path / "t",
        workloads=(service, BUSY),
        pairs=((service, BUSY),),
        passes=1,
        max_blocks=1,
        rounds=2,
        block_s=0.4,
        solo_s=0.4,
    )
    table = measure(config, lambda now: None).table
    keys = {(row.victim, row.metric, row.campaign) for row in table.pairs}
    assert keys == {
        (victim, metric, f"campaign-{number}")
        for victim, of_victim in ((service, metrics), (BUSY, METRICS[:1]))
        for metric in of_victim
        for number in (1, 2)
    }
    blocks = MeasurementLog(tmp_path / "t" / "raw").blocks()
    for side in (side for measured in blocks for side in measured.sides if side.workload == service):
        for alone in (True, False):
            answered = [latency_s for each in side.slices if each.alone is alone for latency_s in each.latencies_s]
            assert len(answered) > 30
            assert min(answered) > 0
        generates = metrics == METRICS
        for each in side.slices:
            assert len(each.ttft_s) == len(each.tpot_s) == generates * len(each.latencies_s)
    again = measure(config, lambda now: pytest.fail(f"measured {now.text}")).table
    assert [row.passes for row in again.pairs] == [row.passes for row in table.pairs]
    card = (tmp_path / "t" / "card.md").read_text()
    assert "open loop" in card
    assert ("time to first token" in card) == generates


@needs_two_cores
def test_the_ranks_of_a_gang_meet_after_every_step_on_two_cores(tmp_path: Path) -> None:
    layout = affinity.choose_layout(SharingMode.TIMESLICE, None, ranks=2)
    with WorkerPool((GANG, BUSY), groups=((GANG, BUSY),), layout=layout, log=tmp_path / "log") as pool:
        processes = descendants(os.getpid())
        alone, both = frozenset({0}), frozenset({0, 1})
        run = pool.run_slices((GANG, BUSY), [[alone, both]], 0.1, 9.0)
        (first, second), (busy,) = pool.group_workers((GANG, BUSY))
        assert {os.sched_getaffinity(rank.pid).pop() for rank in (first, second)} == {
            *layout.cores,
            *layout.further_cores,
        }
        assert os.sched_getaffinity(busy.pid) == os.sched_getaffinity(first.pid)
    steps = [
        [whole_steps(rank.trace, s.start_s, s.end_s).steps for s in run.slices] for rank in run.recordings[0].ranks
    ]  # type: ignore[union-attr]
    assert len(steps) == 2
    assert all(abs(one - other) <= 1 for one, other in zip(*steps, strict=True))
    assert all_gone(processes)


def test_a_gang_without_a_second_core_or_in_another_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnfitError, match="a gang of 9 ranks needs 9 cores"):
        affinity.choose_layout(SharingMode.TIMESLICE, None, ranks=9)
    with pytest.raises(InvalidInputError, match="gangs are measured in mode timeslice alone"):
        WorkloadConfig(out=tmp_path, workloads=(GANG,), mode=SharingMode.PRIORITY)
    with pytest.raises(InvalidInputError, match="rounds have equal blocks"):
        WorkloadConfig(out=tmp_path, workloads=(BUSY,), rounds=2, passes=1)
