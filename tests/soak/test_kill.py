"""kill -9 at random moments under load: what was acknowledged is there exactly once after the restart."""

import os
import random
import time
from pathlib import Path

from interfere.client import PolicyClient
from interfere.records import ObservationResult
from interfere.store.sqlite.store import SqliteStore
from tests.soak.processes import Reporter, serving
from tests.waiting import PATIENCE_S, wait_until

ROUNDS = int(os.environ.get("SOAK_ROUNDS", "3"))  # make soak: 50
REPORTERS = 3
KEPT = (ObservationResult.APPLIED, ObservationResult.QUARANTINED, ObservationResult.DUPLICATE)


def test_every_acknowledged_observation_is_there_exactly_once(model_folder: Path, tmp_path: Path) -> None:
    rng = random.Random(int(os.environ.get("SOAK_SEED", "0")))
    store, known = tmp_path / "store.db", set()
    for number in range(ROUNDS):
        with serving(model_folder, store) as served:
            reporters = [Reporter(served.address, f"{number}-{k}") for k in range(REPORTERS)]
            for one in reporters:
                one.start()
            if not number:
                wait_until(lambda: any(one.acknowledged for one in reporters), "something is acknowledged")  # noqa: B023
            time.sleep(rng.uniform(0.05, 1.0))
            served.kill()
            for one in reporters:
                one.join(timeout=PATIENCE_S)
        sent = {name for one in reporters for name in one.sent}
        acknowledged = {name for one in reporters for name, result in one.acknowledged.items() if result in KEPT}
        assert acknowledged == {name for one in reporters for name in one.acknowledged}
        entries = _ids(store)
        assert len(entries) == len(set(entries)), "an id is stored twice"
        assert known <= set(entries), "an earlier round lost something"
        assert acknowledged <= set(entries), f"round {number}: acknowledged and lost"
        assert set(entries) - known <= sent
        print(f"round {number}: {len(acknowledged)} acknowledged, {len(entries)} stored in all")
        known = set(entries)
    assert known
    # The unanswered ones are sent again: each is applied now or was there already, and the state is one fold of all.
    with serving(model_folder, store) as served, PolicyClient(served.address, timeout_s=20.0) as client:
        batch = [window for one in reporters for window in one.sent.values()]
        results = {one.result for one in client.observe(batch)}
        assert results <= set(KEPT)
        online = client.model().online
        assert online.observations == len(known | sent)
        log = client.observation_log(limit=5)
        assert log.online == online
    assert len(_ids(store)) == len(known | sent)


def _ids(path: Path) -> list[str]:
    store = SqliteStore(path)
    try:
        return [entry.observation.observation_id for entry in store.observations.entries()]
    finally:
        store.close()
