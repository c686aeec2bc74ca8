"""A real Slurm places twelve jobs by the server's matching: where the plan said, and better than by itself."""

import math
import statistics
from collections.abc import Callable

import pytest

from interfere.client import PolicyClient
from interfere.records import OutcomeKind
from interfere.serving.server import RunningServer
from tests.serving.adapters.slurm.cluster import Cluster
from tests.serving.adapters.slurm.conftest import DEVICE, STEP_S, TRUTH

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
JOBS = [name for name in TRUTH for _ in range(3)]  # in this order Slurm puts a heavy one beside a heavy one
STEPS = 50


def submitted(cluster: Cluster) -> list[str]:
    return [cluster.submit(name, STEPS, step_s=STEP_S) for name in JOBS]


def mean_slowdown(cluster: Cluster) -> float:
    runs = [run for found in cluster.runs().values() for run in found]
    assert len(runs) == len(JOBS)
    return sum(run["slowdown"] for run in runs) / len(runs)


def median(client: PolicyClient, victim: str, neighbour: str) -> float:
    answer = client.predict([victim, neighbour], pairs=[(0, 1)], device_type=DEVICE)
    return float(answer.prediction.median[0])


def partners(cluster: Cluster) -> dict[str, set[str]]:
    """Everybody who was on the GPU of a job at any time of it, by the jobs' own word."""
    met: dict[str, set[str]] = {}
    for job, (run,) in cluster.runs().items():
        for other in run["company"]:
            met.setdefault(job, set()).add(other.partition(".")[0])
            met.setdefault(other.partition(".")[0], set()).add(job)
    return met


def test_twelve_jobs_run_where_the_plan_said_and_suffer_less(
    cluster: Callable[..., Cluster], server: RunningServer
) -> None:
    advised, plain = cluster("advised"), cluster("plain", defers=False)
    with PolicyClient(server.address) as client:
        before = {(v, n): median(client, v, n) for v in TRUTH for n in TRUTH}
        own, ids = submitted(plain), submitted(advised)
        advisor = advised.advise(advised.settings(server.address))
        plain.wait_ended(own)
        advised.wait_ended(ids)
        advised.wait(lambda: len(ended(client)) == len(ids))
        assert advisor.poll() is None

        # all run where the plan said
        placed = {one["job"]: one for done in advised.rounds() for one in done["decisions"] if one["device"]}
        assert {job: one["device"] for job, one in placed.items()} == {
            job: run["device"] for job, (run,) in advised.runs().items()
        }
        # every pair is one of the server's matching; a planned one did not run only where the partner had ended
        planned = {frozenset((job, one["partner"])) for job, one in placed.items() if one["partner"]}
        met = {frozenset((job, other)) for job, others in partners(advised).items() for other in others}
        assert met <= planned
        assert len(met) >= 4
        for first, second in (sorted(pair) for pair in planned - met):
            (a,), (b,) = advised.runs()[first], advised.runs()[second]
            assert a["end_s"] <= b["begin_s"] or b["end_s"] <= a["begin_s"]
        # and it was worth it
        mine, theirs = mean_slowdown(advised), mean_slowdown(plain)
        print(f"mean slowdown {mine:.3f}, placed by Slurm alone {theirs:.3f}")
        assert mine < theirs

        # the windows arrived, say the truth, and moved the predictions toward it
        seen = [e.observation for e in client.observation_log(limit=1000).entries if e.observation.job_id in ids]
        shared = {(o.workload, o.company[0]) for o in seen if getattr(o, "company", ())}
        assert len(shared) >= 2
        ratios = [
            (one.end_s - one.start_s) / one.steps / STEP_S / TRUTH[one.workload][one.company[0]]
            for one in seen
            if getattr(one, "company", ())
        ]
        assert statistics.median(ratios) == pytest.approx(1.0, rel=0.1), "a stall may fall into a short window"
        errors = []
        for victim, neighbour in shared:
            truth = math.log(TRUTH[victim][neighbour])
            was, now = math.log(before[victim, neighbour]), math.log(median(client, victim, neighbour))
            errors.append((abs(was - truth), abs(now - truth)))
        was_off, now_off = (sum(column) / len(errors) for column in zip(*errors, strict=True))
        print(f"{len(shared)} pairs seen: log slowdown off by {was_off:.3f} before, {now_off:.3f} after")
        assert now_off < was_off


def ended(client: PolicyClient) -> set[str]:
    entries = client.observation_log(limit=1000).entries
    return {e.observation.job_id for e in entries if getattr(e.observation, "kind", None) is OutcomeKind.ENDED}
