"""Windows of three and four jobs, reported to a real server, reach the next model, and the server answers by it."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.data.tables import write_table
from interfere.predict.groups import composed_slowdown
from interfere.predict.manifest import published_version
from interfere.records import Progress
from interfere.serving.server import start_server
from interfere.training.publishing.model_registry import champion_folder
from interfere.training.retrain import RetrainOutcome, RetrainResult, retrain
from tests.training.cheap_models import CHEAP_MODELS
from tests.training.groups.test_evaluation import DOMAIN, NAMES, TRUTH, slowdown, table

pytestmark = pytest.mark.journey
GROUPS = [*list(combinations(NAMES, 3))[::2], *list(combinations(NAMES, 4))[::4]]
REPORTED, ASKED = GROUPS[::2], GROUPS[1::2]  # groups that run, and others that nobody ever ran


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A table of the pairs alone."""
    (tmp_path / "pairs").mkdir()
    write_table(tmp_path / "pairs", replace(table(noise=0.0), groups=()))
    return tmp_path / "pairs"


def truth(victim: str, others: tuple[str, ...]) -> float:
    return composed_slowdown([slowdown(victim, name) for name in others], TRUTH)


def windows() -> Iterator[Progress]:
    """Two windows of each job of each reported group, 2 % noise."""
    rng = np.random.default_rng(0)
    start_s = 0.0
    for group in REPORTED:
        for _ in range(2):
            start_s += 60.0
            for victim in group:
                others = tuple(name for name in group if name != victim)
                yield Progress(
                    observation_id=f"{victim} {start_s}",
                    job_id=f"j-{victim}",
                    workload=victim,
                    company=others,
                    device_type=DOMAIN[0],
                    mode=DOMAIN[1],
                    start_s=start_s,
                    end_s=start_s + 60.0,
                    slowdown=truth(victim, others) * float(np.exp(rng.normal(0, 0.02))),
                )


def errors(client: PolicyClient) -> tuple[float, float]:
    """Mean |log predicted - log true| of the groups that nobody ran, and of all pairs."""
    asked = [(victim, tuple(name for name in group if name != victim)) for group in ASKED for victim in group]
    asked_pairs = [(i, (j,)) for i in NAMES for j in NAMES if i != j]
    found = []
    for questions in (asked, asked_pairs):
        answer = client.predict(
            NAMES, pairs=[(NAMES.index(victim), *map(NAMES.index, others)) for victim, others in questions]
        )
        true = np.log([truth(*each) if len(each[1]) > 1 else slowdown(each[0], each[1][0]) for each in questions])
        found.append(float(np.abs(np.log(answer.prediction.median) - true).mean()))
    return found[0], found[1]


def wait_served(client: PolicyClient, version: str) -> None:
    deadline_s = time.monotonic() + 30.0
    while client.model().version != version or client.model().online.relearning:
        assert time.monotonic() < deadline_s, f"{version} is not served"
        time.sleep(0.05)


def test_windows_of_groups_reach_the_next_model_and_its_answers(base: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    settings = Settings(work=work, port=0, model_poll_s=0.05, decision_workers=0)

    def run(**options: object) -> RetrainResult:
        return retrain([base], work, store=settings.store_path, models=CHEAP_MODELS, **options)  # type: ignore[arg-type]

    first = run()
    assert first.trained is not None
    assert (first.outcome, first.trained.compositions) == (RetrainOutcome.PUBLISHED, ())
    server = start_server(settings)
    try:
        with PolicyClient(server.address, timeout_s=60.0) as client:
            untaught, _ = errors(client)
            client.observe(list(windows()))
            taught, pairs_taught = errors(client)

            # 1. A training on the log writes the groups, and fits how they are composed.
            second = run()
            assert second.outcome is RetrainOutcome.PUBLISHED, second.reason
            assert (second.observed.pairs, second.observed.group_rows) == (0, sum(map(len, REPORTED)))
            assert (work / "retrain" / "observed" / "groups.parquet").is_file()
            assert second.trained is not None
            (composition,) = second.trained.compositions
            assert composition.choice.refitted
            assert composition.choice.error < 0.5 * composition.choice.present_error

            # 2. The running server takes the model, and answers groups that nobody ran by it.
            version = published_version(champion_folder(work))
            wait_served(client, version)
            retrained, pairs_retrained = errors(client)
            print(
                f"groups: untaught {untaught:.4f}, taught {taught:.4f}, retrained {retrained:.4f}; "
                f"pairs: taught {pairs_taught:.4f}, retrained {pairs_retrained:.4f}"
            )
            assert retrained < 0.5 * min(untaught, taught)
            assert pairs_retrained < pairs_taught, "what the company did is no longer blamed on the pairs"

            # 3. Nothing new is trained on; one more window of a group is.
            assert run().outcome is RetrainOutcome.NOTHING_NEW
            client.observe([replace(next(windows()), observation_id="later", start_s=1e6, end_s=1e6 + 60.0)])
            third = run(dry_run=True)
            assert third.outcome is RetrainOutcome.WOULD_TRAIN
    finally:
        server.stop()
