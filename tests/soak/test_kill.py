"""kill -9 at random moments under load: what was acknowledged is there exactly once after the restart."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.records import ObservationResult
from interfere.store.store import StoreAddress, open_store
from tests.soak.processes import Reporter, serving
from tests.store.postgres_server import running_postgres
from tests.waiting import PATIENCE_S, wait_until

ROUNDS = int(os.environ.get("SOAK_ROUNDS", "3"))  # make soak: 50
REPORTERS = 3
KEPT = (ObservationResult.APPLIED, ObservationResult.QUARANTINED, ObservationResult.DUPLICATE)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreAddress]:
    """The address of a new store."""
    if request.param == "sqlite":
        yield tmp_path / "store.db"
    else:
        with running_postgres(fsync=True) as server:
            yield server.new_database()


def test_every_acknowledged_observation_is_there_exactly_once(
    model_folder: Path, tmp_path: Path, store: StoreAddress
) -> None:
    rng = random.Random(int(os.environ.get("SOAK_SEED", "0")))
    known: set[str] = set()
    sent_ever: set[str] = set()
    for number in range(ROUNDS):
        with serving(model_folder, store, tmp_path / "work") as served:
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
        sent_ever |= sent
        acknowledged = {name for one in reporters for name, result in one.acknowledged.items() if result in KEPT}
        assert acknowledged == {name for one in reporters for name in one.acknowledged}
        entries = _ids(store)
        assert len(entries) == len(set(entries)), "an id is stored twice"
        assert known <= set(entries), "an earlier round lost something"
        assert acknowledged <= set(entries), f"round {number}: acknowledged and lost"
        # A database may end the last transaction of a killed server after the round: what nobody was told may be there.
        assert set(entries) <= sent_ever
        print(f"round {number}: {len(acknowledged)} acknowledged, {len(entries)} stored in all")
        known = set(entries)
    assert known
    # The unanswered ones are sent again: each is applied now or was there already, and the state is one fold of all.
    with (
        serving(model_folder, store, tmp_path / "work") as served,
        PolicyClient(served.address, timeout_s=20.0) as client,
    ):
        batch = [window for one in reporters for window in one.sent.values()]
        results = {one.result for one in client.observe(batch)}
        assert results <= set(KEPT)
        online = client.model().online
        assert online.observations == len(_ids(store, read_only=True))
        log = client.observation_log(limit=5)
        assert log.online == online
    entries = _ids(store)
    assert known | sent <= set(entries) <= sent_ever
    assert len(entries) == len(set(entries))


def _ids(address: StoreAddress, *, read_only: bool = False) -> list[str]:
    store = open_store(address, read_only=read_only)
    try:
        return [entry.observation.observation_id for entry in store.observations.entries()]
    finally:
        store.close()
