"""Single bits of a store and of its write-ahead log are flipped at random: nothing false is read, losses are named."""

import os
import random
import shutil
from pathlib import Path

import pytest

from interfere.errors import UnfitError
from interfere.records import ScopeLedger
from interfere.store.sqlite.maintenance import check
from interfere.store.store import SqliteStore
from interfere.testing.stores import AUDIT, DECISION, PROFILE, append, promise, window

FLIPS = 4 * int(os.environ.get("SOAK_ROUNDS", "5"))  # make soak: 200
FILES = ("", "-wal", "-mark")


def contents(path: Path) -> set[str]:
    """Everything that a server reads of a store, as text."""
    store = SqliteStore(path)
    try:
        ledger = store.ledgers.read("s")
        found = [*store.observations.entries(), *store.profiles.all(), *ledger.promises]
        found += [store.decisions.find("s", DECISION.snapshot_id), store.audits.find(AUDIT.decision_id)]
        return {repr(each) for each in found if each is not None}
    finally:
        store.close()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of which the last transactions are in the write-ahead log, as a killed process leaves it."""
    folder = tmp_path_factory.mktemp("flips")
    store = SqliteStore(folder / "served.db")
    append(store, *(window(str(k)) for k in range(150)))
    store.profiles.put([PROFILE])
    store.close()
    store = SqliteStore(folder / "served.db")
    assert store.ledgers.commit(ScopeLedger(scope="s", promises=(promise("a"), promise("b"))), DECISION)
    store.audits.put(AUDIT)
    for k in range(150, 170):
        append(store, window(str(k)))
    for ending in FILES:
        shutil.copy(folder / f"served.db{ending}", folder / f"store.db{ending}")
    store.close()
    return folder / "store.db"


def test_no_flipped_bit_is_believed(original: Path, tmp_path: Path) -> None:
    copied = tmp_path / "whole.db"
    for ending in FILES:
        shutil.copy(f"{original}{ending}", f"{copied}{ending}")
    before = contents(copied)
    assert len(before) == 175
    rng = random.Random(7)
    outcomes = {"whole": 0, "rows lost and named": 0, "refused with advice": 0}
    for trial in range(FLIPS):
        path = tmp_path / f"{trial}.db"
        for ending in FILES:
            shutil.copy(f"{original}{ending}", f"{path}{ending}")
        ending = rng.choice(FILES[:2])
        damaged = path.with_name(path.name + ending)
        content = bytearray(damaged.read_bytes())
        at, bit = rng.randrange(len(content)), rng.randrange(8)
        content[at] ^= 1 << bit
        damaged.write_bytes(content)
        where = f"trial {trial}: byte {at}, bit {bit} of {damaged.name}"
        refusal, after = "", before
        try:
            after = contents(path)
        except UnfitError as error:
            refusal = str(error)
        if refusal:
            assert "interfere store" in refusal, where
            outcomes["refused with advice"] += 1
        else:
            assert after <= before, where
            report = check(path)
            named = (*report.set_aside, *(line for line in report.problems if line.startswith("profile ")))
            missing = len(before - after)
            in_transactions = any("transactions are missing" in line for line in named)
            assert missing <= len(named) or in_transactions, where
            outcomes["rows lost and named" if missing else "whole"] += 1
        for each in tmp_path.glob(f"{trial}.db*"):
            each.unlink()
    print(outcomes)
    assert sum(outcomes.values()) == FLIPS
