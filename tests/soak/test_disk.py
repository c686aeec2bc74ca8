"""A full disk and a second server: clear answers, nothing lost, and no restart needed when space returns."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.errors import UnavailableError
from interfere.records import ObservationResult
from tests.soak.processes import serving, shared, start
from tests.waiting import PATIENCE_S

MIB = 2**20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MB; skipped where it cannot be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs root and a kernel that mounts a tmpfs: run as root to check a full disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_is_unavailable_and_the_server_recovers_by_itself(model_folder: Path, small_disk: Path) -> None:
    store, filler = small_disk / "store.db", small_disk / "filler"
    with serving(model_folder, store) as served, PolicyClient(served.address, timeout_s=PATIENCE_S) as client:
        stored = 0
        client.observe([shared(f"before-{k}", k) for k in range(50)])
        stored += 50
        _fill(filler)
        with contextlib.suppress(UnavailableError):
            for batch in range(200):
                client.observe([shared(f"{batch}-{k}", k) for k in range(500)])
                stored += 500
        told, before = client.model().online, client.predict(["infer", "gemm"]).prediction.median.tolist()
        assert told.observations == stored
        for _ in range(3):  # still full: still the same answer, and predictions go on
            with pytest.raises(UnavailableError, match="free the disk"):
                client.observe([shared(f"full-{k}", k) for k in range(500)])
        assert client.predict(["infer", "gemm"]).prediction.median.tolist() == before
        assert client.model().online == told
        filler.unlink()
        answers = client.observe([shared(f"after-{k}", k) for k in range(500)])
        assert {one.result for one in answers} == {ObservationResult.APPLIED}
        online = client.model().online
        assert online.observations == stored + 500
    with serving(model_folder, store) as served, PolicyClient(served.address, timeout_s=PATIENCE_S) as client:
        assert client.model().online == online


def _fill(filler: Path) -> None:
    """Leave a few pages."""
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(os.urandom(MIB // 4))
    os.truncate(filler, filler.stat().st_size - MIB // 4)


def test_a_second_server_on_the_same_store_refuses_with_the_reason(model_folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with serving(model_folder, store) as served:
        second = start(model_folder, store)
        out, err = second.communicate(timeout=PATIENCE_S)
        assert second.returncode == 1
        assert f"another server (process {served.process.pid}) has this store open" in err + out
        assert "remedy" in err + out
        with PolicyClient(served.address) as client:
            assert client.model().online.observations == 0  # the first goes on
