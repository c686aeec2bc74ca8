"""Public files are fetched from a real server on loopback: whole, with the right bytes, or not at all."""

import functools
import hashlib
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from interfere.data.public_tables import FetchStatus, collections, fetch_collection, public_tables
from interfere.errors import NotFoundError
from tests.data.importers.public_files import public


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """(address, folder) of a file server."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(SimpleHTTPRequestHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    thread.join()
    server.server_close()


def test_files_are_fetched_verified_and_not_fetched_again(tmp_path: Path, mirror: tuple[str, Path]) -> None:
    address, folder = mirror
    for table in public_tables():
        if table.collection == "parvagpu":
            shutil.copy(public(f"parvagpu/{table.file}"), folder / table.file)
    got = fetch_collection("parvagpu", tmp_path / "got", mirror=address)
    assert {file.status for file in got} == {FetchStatus.FETCHED}
    assert len(got) == 11
    shutil.rmtree(folder)
    again = fetch_collection("parvagpu", tmp_path / "got", mirror=address)
    assert {file.status for file in again} == {FetchStatus.PRESENT}


def test_other_bytes_are_refused_and_a_missing_file_says_what_to_do(tmp_path: Path, mirror: tuple[str, Path]) -> None:
    address, folder = mirror
    (folder / "oracle_throughputs.json").write_text("{}")
    oracle, *traces = fetch_collection("gavel", tmp_path / "got", mirror=address)
    assert oracle.status is FetchStatus.MISSING
    assert f"sha256 {hashlib.sha256(b'{}').hexdigest()}" in oracle.reason
    assert not oracle.path.exists()
    assert {trace.status for trace in traces} == {FetchStatus.MISSING}
    assert "404" in str(traces[0].reason) or "not found" in str(traces[0].reason).lower()
    assert "https://raw.githubusercontent.com/stanford-futuredata/gavel" in traces[0].by_hand
    assert traces[0].table.sha256 in traces[0].by_hand


def test_a_file_of_which_only_a_part_is_known_is_kept_as_unverified(tmp_path: Path, mirror: tuple[str, Path]) -> None:
    address, folder = mirror
    for name in ("colocate_info.csv", "single_data.csv"):
        (folder / name).write_text("model1\n")
    got = fetch_collection("lucid", tmp_path / "got", mirror=address)
    assert {file.status for file in got} == {FetchStatus.UNVERIFIED}
    assert got[0].sha256 == hashlib.sha256(b"model1\n").hexdigest()


def test_where_no_server_answers_nothing_is_lost(tmp_path: Path) -> None:
    got = fetch_collection("orion", tmp_path / "got", mirror="http://127.0.0.1:9")
    assert {file.status for file in got} == {FetchStatus.MISSING}
    assert "refused" in got[0].reason
    bad = fetch_collection("orion", tmp_path / "got", mirror="file:///etc")
    assert "not an http" in bad[0].reason
    with pytest.raises(NotFoundError, match="no such collection"):
        fetch_collection("nobody", tmp_path)


def test_venus_is_called_a_reconstruction(tmp_path: Path) -> None:
    jobs = fetch_collection("venus", tmp_path / "got", mirror="http://127.0.0.1:9")[0]
    assert "reconstructed" in jobs.table.note
    assert "HeliosData" in jobs.by_hand
    assert set(collections()) == {"gavel", "lucid", "venus", "orion", "echo", "parvagpu"}
