"""EASY backfill by hand: nothing delays the first job that waits; the second simulator checks it on traces."""

import pytest

from interfere.sim.beliefs import true_beliefs
from interfere.sim.replay import replay
from interfere.sim.schedulers.records import PRESETS
from interfere.sim.schedulers.registry import make_scheduler
from interfere.sim.schedulers.sharing import SchedulerSettings
from interfere.sim.truth import TableTruth
from interfere.sim.world import World
from interfere.testing.schedulers import MODE, USUAL, job
from tests.sim.small_worlds import world

KNOWN = true_beliefs(USUAL)
SETTINGS = SchedulerSettings(predictor=KNOWN, profiles=KNOWN.profiles, mode=MODE, min_joint_throughput=0.0)


def ends(made: World, policy: str) -> dict[str, float]:
    replayed = replay(made, TableTruth([USUAL]), make_scheduler(PRESETS[policy], SETTINGS))
    return dict(zip((one.id for one in made.jobs), replayed.ended_s.tolist(), strict=True))


def test_a_stream_of_small_jobs_starves_a_gang_only_under_first_fit() -> None:
    small = [job(f"s{k}", 6.0 * k, 10) for k in range(20)]
    made = world(*small[:1], job("gang", 1, 5, gpus=2), *small[1:], count=2)
    assert ends(made, "fifo-easy")["gang"] == 15
    assert ends(made, "fifo-first-fit")["gang"] > 100


@pytest.mark.parametrize("sharing", ["greedy", "matching"])
def test_a_guest_may_not_delay_the_gang(sharing: str) -> None:
    """The gang gets both devices at 20, when b ends. A guest of 3 s beside a ends by then at 1.1, one of 30 s does not:
    it waits for the gang, but not under first fit."""

    def made(guest_s: float) -> World:
        guest = job("guest", 2, guest_s)
        return world(job("a", 0, 10), job("b", 0, 20, "stranger"), job("gang", 1, 5, gpus=2), guest, count=2)

    found = ends(made(3), f"fifo-easy-{sharing}")
    assert (found["guest"], found["gang"]) == (pytest.approx(5.3), 25)
    found = ends(made(30), f"fifo-easy-{sharing}")
    assert (found["guest"], found["gang"]) == (55, 25)
    found = ends(made(30), f"fifo-first-fit-{sharing}")
    assert found["guest"] < 34 < found["gang"]
