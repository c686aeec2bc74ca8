"""Windows of constant company: cut where somebody comes or goes, known by ids that a restart makes again."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from interfere.progress import Mark
from interfere.records import Outcome, OutcomeKind, Progress
from interfere.serving.adapters.observations import outcomes
from interfere.serving.adapters.slurm.jobs import GpuAddress, Note, SlurmJob
from interfere.serving.adapters.slurm.port import MAX_COMPANY, SETTLE_S, decided_jobs, runs
from interfere.serving.adapters.slurm.scontrol import JobEnding, read_ending
from interfere.serving.adapters.slurm.settings import SlurmSettings
from interfere.serving.adapters.windows import ColocationWindow, Residencies, Residency, colocation_windows, progress
from tests.serving.adapters.slurm.facts import NOW, SETTINGS, node, pending, running

LONG = replace(SETTINGS, report_every_s=3600.0)  # NOW is 800 s after a multiple of it


def ended(job_id: int, gpu: str, workload: str, start_s: float, end_s: float, **given: object) -> SlurmJob:
    """Slurm has forgotten its GPU; our note has not."""
    note = Note(state="placed", to=GpuAddress("n0", gpu), decision="d")
    values = {"state": "COMPLETED", "end_s": end_s, "held": (), "note": note} | given
    return running(job_id, gpu, workload, start_s, **values)  # type: ignore[arg-type]


def residencies_of(
    *jobs: SlurmJob, settings: SlurmSettings = LONG, endings: Sequence[JobEnding] = ()
) -> Residencies[SlurmJob]:
    """As one round sees them."""
    residencies = Residencies[SlurmJob](settings.lookback_s)
    residencies.see(runs(jobs, [node()], settings, endings), NOW)
    return residencies


def found(*jobs: SlurmJob, settings: SlurmSettings = LONG, now_s: float = NOW) -> list[ColocationWindow[SlurmJob]]:
    rules = settings.window_rules(settle_s=SETTLE_S, max_company=MAX_COMPANY)
    return list(colocation_windows(residencies_of(*jobs, settings=settings).all(), rules, now_s))


@dataclass
class Marked:
    """Marks that a test makes up. Implements MarkSource."""

    marks_of: Callable[[Residency[SlurmJob]], list[Mark]]

    def marks(self, residency: Residency[SlurmJob], now_s: float) -> list[Mark]:
        return self.marks_of(residency)

    def complete_until_s(self, now_s: float) -> float:
        return now_s


def progress_of_windows(
    windows: list[ColocationWindow[SlurmJob]],
    marks_of: Callable[[Residency[SlurmJob]], list[Mark]],
    settings: SlurmSettings,
) -> tuple[Progress, ...]:
    """What is reported of the windows that have enough marks."""
    rules = settings.window_rules(settle_s=SETTLE_S, max_company=MAX_COMPANY)
    measured = (progress(window, Marked(marks_of), rules, "slurm/c", NOW) for window in windows)
    return tuple(each for each in measured if each is not None)


def told_outcomes(jobs: list[SlurmJob], now_s: float) -> tuple[Outcome, ...]:
    return outcomes(decided_jobs(jobs, SETTINGS, now_s), "slurm/c")


def spans(cut: list[ColocationWindow[SlurmJob]], job_id: str) -> list[tuple[float, float, tuple[str, ...]]]:
    return [
        (w.start_s - NOW, w.end_s - NOW, tuple(one.job.workload for one in w.company))
        for w in cut
        if w.residency.job.id == job_id
    ]


def marks(begin_s: float, end_s: float, rate: float, writer: str = "w") -> list[Mark]:
    """A mark a second, `rate` steps each."""
    return [Mark(writer, begin_s + k, 0.0, rate * k) for k in range(int(end_s - begin_s) + 1)]


def test_a_stay_is_cut_where_company_changes_and_guarded_by_a_second_there() -> None:
    cut = found(
        ended(1, "g0", "a", NOW - 100, NOW - 10),
        ended(2, "g0", "b", NOW - 80, NOW - 60),
        ended(3, "g1", "c", NOW - 90, NOW - 50),
        running(4, "g0", "d", NOW - 30),
    )
    assert spans(cut, "1") == [(-100, -81, ()), (-79, -61, ("b",)), (-59, -31, ()), (-29, -10, ("d",))]
    assert spans(cut, "2") == [(-80, -60, ("a",))]
    assert spans(cut, "3") == [(-90, -50, ())]
    assert spans(cut, "4") == [(-30, -11, ("a",))]  # its residency alone is not over


def test_a_long_stay_is_told_in_parts_at_whole_multiples() -> None:
    cut = found(running(1, "g0", "a", NOW - 200), settings=SETTINGS)
    assert [w.start_s for w in cut] == [NOW - 200, *(k * 60.0 for k in range(28333331, 28333333))]
    assert cut[-1].end_s == 28333333 * 60.0 <= NOW - 3


def test_what_is_old_unsettled_unclear_or_crowded_is_not_told() -> None:
    old = ended(1, "g0", "a", NOW - 400, NOW - 300)
    fresh = ended(2, "g1", "a", NOW - 20, NOW - 1)
    assert found(old, fresh) == []
    lost = ended(3, "g0", "b", NOW - 60, NOW - 50, note=None)  # nobody knows on which GPU
    cut = found(running(1, "g0", "a", NOW - 100), lost, now_s=NOW)
    assert spans(cut, "1") == [(-100, -61, ())]
    crowd = [running(k, "g0", "abc"[k], NOW - 100 + 10 * k) for k in range(3)]
    assert max(len(w.company) for w in found(*crowd)) == 1
    silent = running(7, "g0", comment="", start_s=NOW - 60)
    assert spans(found(running(1, "g0", "a", NOW - 100), silent), "1") == [(-100, -61, ())]


def test_the_gpu_of_an_ended_job_comes_from_the_epilog_or_an_earlier_round() -> None:
    job = ended(1, "g0", "a", NOW - 60, NOW - 20, note=None)
    ending = read_ending('{"job": "1", "restarts": 0, "node": "n0", "gpus": "1"}')
    assert ending == JobEnding(job_id="1", restarts=0, node="n0", gpu_indices=(1,))
    (residency,) = residencies_of(job, endings=[ending]).all()
    assert (residency.place.device_id, residency.workload) == ("n0/g1", "a")
    residencies = residencies_of(running(1, "g0", "a", NOW - 60))
    residencies.see(runs([job], [node()], LONG), NOW)  # an earlier round saw it run
    (residency,) = residencies.all()
    assert (residency.place.device_id, residency.end_s) == ("n0/g0", NOW - 20)
    unknown = residencies_of(job).all()  # it may have been on any GPU of its node, so nothing is certain of them
    assert [(residency.place.device_id, residency.workload) for residency in unknown] == [("n0/g0", ""), ("n0/g1", "")]
    assert read_ending("{") is None
    assert read_ending('{"job": "1", "node": "n0", "gpus": "x"}') is None


def test_steps_between_the_first_and_last_mark_of_the_busiest_writer() -> None:
    cut = found(ended(1, "g0", "a", NOW - 100, NOW - 10), ended(2, "g0", "b", NOW - 80, NOW - 60))
    told = progress_of_windows(
        cut,
        lambda residency: (
            [*marks(NOW - 100, NOW, 5.0), *marks(NOW - 100, NOW, 0.1, "idle")] if residency.job.id == "1" else []
        ),
        LONG,
    )
    assert [(one.company, one.steps / (one.end_s - one.start_s)) for one in told] == [
        ((), 5.0),
        (("b",), 5.0),
        ((), 5.0),
    ]
    assert [one.observation_id for one in told] == [f"slurm/c/1.0/{NOW - s:.0f}" for s in (100, 79, 59)]
    assert told[1].start_s == NOW - 79
    assert told[1].device_id == "n0/g0"
    few = progress_of_windows(cut, lambda _: [Mark("w", NOW - 70, 0.0, 1.0), Mark("w", NOW - 69, 0.0, 2.0)], LONG)
    assert few == ()  # less than least_window_s


def test_company_that_still_loads_its_data_is_no_company_yet() -> None:
    cut = found(ended(1, "g0", "a", NOW - 100, NOW - 10), ended(2, "g0", "b", NOW - 100, NOW - 10))
    of = {"1": marks(NOW - 99, NOW - 10, 5.0), "2": marks(NOW - 40, NOW - 20, 1.0)}
    mine, theirs = progress_of_windows(cut, lambda residency: of[residency.job.id], LONG)
    assert (mine.start_s, mine.end_s) == (theirs.start_s, theirs.end_s) == (NOW - 40, NOW - 20)
    of["2"] = [Mark("w", NOW - 5, 0.0, 1.0)]  # began after the window: nothing can be said about it
    assert progress_of_windows(cut, lambda residency: of[residency.job.id], LONG) == ()
    of["2"] = []  # marks nothing at all: Slurm's word must do
    assert [one.job_id for one in progress_of_windows(cut, lambda residency: of[residency.job.id], LONG)] == ["1"]


@given(
    residencies=st.lists(
        st.tuples(st.integers(0, 200), st.integers(1, 100), st.sampled_from(["g0", "g1"])), min_size=1, max_size=6
    ),
    rounds=st.lists(st.integers(0, 260), min_size=1, max_size=6),
)
def test_what_is_told_does_not_depend_on_when_one_looks(
    residencies: list[tuple[int, int, str]], rounds: list[int]
) -> None:
    """An id always stands for the same content: an advisor that restarts tells nothing twice, or otherwise."""
    told: dict[str, object] = {}
    begin = NOW - 300
    for after in rounds:
        now_s = begin + after
        jobs = [
            ended(k, gpu, f"w{k}", begin + a, begin + a + n) if a + n <= after else running(k, gpu, f"w{k}", begin + a)
            for k, (a, n, gpu) in enumerate(residencies)
            if a <= after
        ]
        written, cut = marks(begin, now_s, 3.0), found(*jobs, settings=SETTINGS, now_s=now_s)
        for one in progress_of_windows(cut, lambda _, known=written: known, SETTINGS):  # type: ignore[misc]  # binds now
            assert told.setdefault(one.observation_id, one) == one
            assert one.end_s <= now_s


def test_outcomes_are_read_from_slurm_alone() -> None:
    there = running(1, "g0", note=Note(state="placed", to=GpuAddress("n0", "g0"), decision="d1"))
    elsewhere = running(2, "g0", note=Note(state="placed", to=GpuAddress("n9", "g0"), decision="d2"))
    over = ended(3, "g0", "a", NOW - 60, NOW - 20, state="OUT_OF_MEMORY")
    note = Note(state="placed", to=GpuAddress("n0", "g0"), decision="d6", round_s=int(NOW) - 61, tries=2)
    late, soon = pending(6, note=note), pending(7, note=replace(note, round_s=int(NOW) - 1))
    told = told_outcomes([there, elsewhere, over, pending(4), running(5, "g1"), late, soon], NOW)
    assert [(one.job_id, one.kind, one.reason) for one in told] == [
        ("1", OutcomeKind.APPLIED, ""),
        ("2", OutcomeKind.LOST_RACE, "it started on n0"),
        ("3", OutcomeKind.APPLIED, ""),
        ("3", OutcomeKind.ENDED, "out of memory"),
        ("6", OutcomeKind.LOST_RACE, "it did not start within 60 s"),
    ]
    assert told[:4] == told_outcomes([there, elsewhere, over], NOW + 100)
    assert math.isfinite(told[0].at_s)
    assert told[0].decision_id == "d1"
