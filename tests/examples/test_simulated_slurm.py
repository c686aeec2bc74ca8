"""The adapter as it ships on a simulated Slurm: when jobs start, in which order, and what the server is told."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from examples.site.arms import Arm, adapter_values
from examples.site.greedy import GreedyClient
from examples.site.replaying import completion_of_steps
from examples.site.simulated_slurm import AdvisedSlurm, SimulatedJob
from interfere.records import (
    Device,
    Job,
    JobProfile,
    Observation,
    ObservationAnswer,
    ObservationResult,
    Progress,
    Snapshot,
)
from interfere.records.documents import from_document
from interfere.serving.adapters.slurm.settings import SlurmSettings
from interfere.sim.replay import Replayed, replay
from interfere.sim.truth import TableTruth
from interfere.sim.world import SimDevice, SimJob, World
from interfere.testing.schedulers import USUAL

PLACEMENT_S, STEP_S = 0.5, 0.01
ROUND_S = adapter_values(Arm.OURS)["interval_s"]


class OneSlowdown(GreedyClient):
    """A greedy client of no server: it predicts one slowdown for every pair, and keeps what it is told."""

    def __init__(self, slowdown: float = 1.2) -> None:
        super().__init__("127.0.0.1:1")
        self.slowdown, self.observed = slowdown, list[Observation]()

    def _pair(self, job: Job, host: Job, device: Device, snapshot: Snapshot) -> tuple[float, float]:
        return self.slowdown, self.slowdown

    def observe(self, observations: Sequence[Observation]) -> tuple[ObservationAnswer, ...]:
        self.observed += observations
        return tuple(
            ObservationAnswer(observation_id=each.observation_id, result=ObservationResult.APPLIED)
            for each in observations
        )

    def list_profiles(self, workload: str = "", device_type: str = "") -> tuple[Any, ...]:
        return ()

    def register_profiles(self, profiles: Sequence[JobProfile]) -> tuple[str, ...]:
        return ()


def sim_job(number: int, arrival_s: float, duration_s: float, workload: str = "light", **given: Any) -> SimJob:
    values = {"gpus": 1, "arrival_s": arrival_s, "duration_s": duration_s, "workload": workload}
    return SimJob(id=str(number), **(values | given))


def replayed(client: GreedyClient, *jobs: SimJob, truth: TableTruth | None = None) -> Replayed:
    """Replay jobs on two nodes of one device."""
    nodes = tuple(SimDevice(device=Device(id=f"n{k}/g0", node=f"n{k}", type="v100")) for k in range(2))
    known = {
        job.id: SimulatedJob(
            comment=f"interfere:workload={job.workload};remaining_s={job.duration_s:.1f}" if job.gpus == 1 else "",
            step_s=STEP_S,
        )
        for job in jobs
    }
    settings = from_document(SlurmSettings, adapter_values(Arm.GREEDY) | {"spool": "/nonexistent/spool"})
    scheduler = AdvisedSlurm.of(
        client, settings, known, begin_s=1_700_000_000.0, placement_s=PLACEMENT_S, mark_every_s=0.2
    )
    with client:
        return replay(World(name="w", jobs=jobs, devices=nodes), truth or TableTruth([USUAL]), scheduler)


def places(done: Replayed) -> dict[str, tuple[str, ...]]:
    return {span.job_id: span.device_ids for span in done.spans}


def test_a_job_starts_a_moment_after_the_round_that_places_it() -> None:
    done = replayed(OneSlowdown(), sim_job(1, 0.7, 5.0), sim_job(2, 2.0, 5.0))
    assert done.started_s.tolist() == [ROUND_S * 1.5 + PLACEMENT_S, ROUND_S * 2.5 + PLACEMENT_S]
    assert len(set(places(done).values())) == 2, "an idle device comes before a shared one"


def test_a_prepared_job_starts_when_the_job_before_it_ends() -> None:
    """Four jobs fill both devices; the fifth waits from the beginning, and is chosen before a place is free."""
    done = replayed(OneSlowdown(), *(sim_job(k, 0.0, 6.0 + k) for k in range(1, 5)), sim_job(5, 0.0, 3.0))
    assert done.started_s[4] == min(done.ended_s[:4])


def test_a_pair_that_does_not_pay_waits_for_an_idle_device() -> None:
    done = replayed(OneSlowdown(2.0), *(sim_job(k, 0.0, 6.0) for k in range(1, 4)))
    assert done.started_s[2] >= min(done.ended_s[:2])


def test_nobody_passes_a_job_of_whole_gpus_and_it_shares_none() -> None:
    jobs = [sim_job(1, 0.0, 8.0), sim_job(2, 0.0, 4.0), sim_job(3, 3.0, 3.0, gpus=2), sim_job(4, 3.5, 2.0)]
    done = replayed(OneSlowdown(), *jobs)
    assert done.started_s[2] == max(done.ended_s[:2]), "Slurm itself starts it as soon as both are free"
    assert done.started_s[3] >= done.ended_s[2], (
        "its limit is a minute, as those of all: Slurm would not start it before"
    )
    assert [span.company_ids for span in done.spans if span.job_id == "3"] == [()]


def test_the_server_learns_the_slowdowns_that_jobs_had() -> None:
    client = OneSlowdown()
    long = [sim_job(1, 0.0, 12.0, "heavy", start_up_s=2.0, shut_down_s=1.0), sim_job(2, 0.0, 12.0, "heavy")]
    done = replayed(client, *long, sim_job(3, 4.0, 6.0), sim_job(4, 30.0, 1.0))  # windows are told some seconds later
    found = [each for each in client.observed if isinstance(each, Progress)]
    by_company = {(each.workload, each.company): (each.end_s - each.start_s) / each.steps / STEP_S for each in found}
    assert by_company["heavy", ()] == pytest.approx(1.0, rel=0.01)
    assert by_company["heavy", ("light",)] == pytest.approx(1.2, rel=0.05)
    assert by_company["light", ("heavy",)] == pytest.approx(1.3, rel=0.05)
    assert len({each.observation_id for each in found}) == len(found), "each window is told once"
    completions_s = completion_of_steps(done)
    assert completions_s[0] == pytest.approx(done.completion_s[0] - 1.0), "its processes end after its last step"
    assert completions_s[1:] == pytest.approx(done.completion_s[1:])


@pytest.mark.parametrize("seed", range(4))
def test_drawn_streams_end_and_every_start_has_a_place(seed: int) -> None:
    """The cluster refuses a start on a place that is taken; here also: jobs of whole GPUs in order, and none early."""
    rng = random.Random(seed)
    arrivals = itertools.accumulate(rng.expovariate(0.7) for _ in range(25))
    jobs = [
        sim_job(k + 1, at_s, rng.uniform(3.0, 12.0), rng.choice(USUAL.workloads), gpus=rng.choice((1, 1, 1, 2)))
        for k, at_s in enumerate(arrivals)
    ]
    jobs = [replace(job, idle_s=0.1, start_up_s=1.0, shut_down_s=0.5) for job in jobs]
    done = replayed(OneSlowdown(), *jobs, truth=TableTruth([USUAL], loading_workload="medium"))
    assert all(done.started_s[k] >= job.arrival_s for k, job in enumerate(jobs))
    gangs_s = [done.started_s[k] for k, job in enumerate(jobs) if job.gpus == 2]
    assert gangs_s == sorted(gangs_s)
    assert completion_of_steps(done) == pytest.approx(done.completion_s, abs=2.0)
    again = replayed(OneSlowdown(), *jobs, truth=TableTruth([USUAL], loading_workload="medium"))
    assert again.ended_s.tolist() == done.ended_s.tolist()
