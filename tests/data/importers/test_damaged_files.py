"""Damaged copies of every public file: one error that names file and place, and nothing written."""

import gzip
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.commands.data.importing import app
from interfere.data.importers.import_writer import DIFFERENT, IDENTICAL
from interfere.errors import TableError
from tests.data.importers.public_files import public

# Each public file: its folder, its name, the import of it (`{}` is the copy, or the folder of copies), a name inside it
# that a rename breaks, and a number inside it.
FILES = (
    ("gavel", "oracle_throughputs.json", "gavel {file} --no-static", '"null"', "8.108348261420462"),
    ("gavel", "philly_103959.trace", "philly {file}", "\t", "251674.000000"),
    ("lucid", "colocate_info.csv", "lucid {folder} --no-static", "speed1", "1.055"),
    ("lucid", "single_data.csv", "lucid {folder} --no-static", "gmem_util", "1986.707"),
    ("venus", "jobs_4vc.csv", "helios {file}", "submit_time", ",131,"),
    ("venus", "vc_config.csv", "helios {folder}/jobs_4vc.csv --vc-config {file}", "num", "20"),
    ("orion", "resnet50_4_fwd.csv", "orion {file}", "Duration", "100480"),
    ("echo", "merged_features.csv", "nsight {file} --device-type a100", "Kernel Name", "70656,0.0"),
)
PLACE = re.compile(r"(row \d+|key [^:]+)")


def ascii_in_front(content: bytes) -> bytes:
    """A letter that latin-1 and UTF-8 write differently, inside the first name of the file."""
    spot = re.search(rb"[A-Za-z]", content)
    assert spot
    return content[: spot.start()] + "é".encode("latin-1") + content[spot.start() :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut in the middle of a row": lambda content: content[: int(len(content) * 0.6)].rstrip(b"\r\n"),
    "cut to nothing": lambda _: b"",
    "UTF-16": lambda content: content.decode().encode("utf-16"),
    "UTF-16 without a mark": lambda content: content.decode().encode("utf-16-le"),
    "latin-1": ascii_in_front,
    "gzip": gzip.compress,
    "zeros in it": lambda content: content[:300] + bytes(16) + content[300:],
}
EDITS = ("text", "-5", "NaN", "1e309", "3,5", "")


def copies(folder: str, tmp_path: Path) -> Path:
    """A folder with the user's copies of the public files of one source."""
    shutil.copytree(public(folder), tmp_path / folder, copy_function=shutil.copyfile)
    return tmp_path / folder


def import_copy(arguments: str, folder: Path, name: str, out: Path) -> TableError:
    """The one error that the import of a damaged copy raises, after which nothing is written."""
    command = arguments.format(file=folder / name, folder=folder).split()
    done = CliRunner().invoke(app, [*command, "--out", str(out)])
    assert isinstance(done.exception, TableError), (done.output, done.exception)
    assert not out.exists()
    assert sorted(path.name for path in out.parent.iterdir()) == [folder.name], "no temporary folder is left"
    return done.exception


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(("source", "name", "arguments"), [one[:3] for one in FILES])
def test_a_damaged_file(source: str, name: str, arguments: str, damage: str, tmp_path: Path) -> None:
    folder = copies(source, tmp_path)
    (folder / name).write_bytes(DAMAGE[damage]((folder / name).read_bytes()))
    error = import_copy(arguments, folder, name, tmp_path / "out")
    assert name in error.what
    assert PLACE.search(error.what)
    assert error.remedy


@pytest.mark.parametrize(("source", "name", "arguments", "old"), [one[:4] for one in FILES])
def test_a_renamed_column_or_key(source: str, name: str, arguments: str, old: str, tmp_path: Path) -> None:
    folder = copies(source, tmp_path)
    text = (folder / name).read_text(encoding="utf-8")
    (folder / name).write_text(text.replace(old, '"nil"' if old == '"null"' else "renamed"), encoding="utf-8")
    error = import_copy(arguments, folder, name, tmp_path / "out")
    assert re.search(r"row 1, column|key .* / null", error.what)
    assert name in error.what


@pytest.mark.parametrize("new", EDITS)
@pytest.mark.parametrize(("source", "name", "arguments", "_", "old"), FILES)
def test_a_hand_edited_number(
    source: str, name: str, arguments: str, _: str, old: str, new: str, tmp_path: Path
) -> None:
    folder = copies(source, tmp_path)
    text = (folder / name).read_bytes().decode()
    assert old in text
    digits = re.search(r"[\d.]+", old)
    assert digits
    row = text[: text.index(old)].count("\n") + 1
    (folder / name).write_bytes(text.replace(old, old.replace(digits[0], new, 1), 1).encode())
    error = import_copy(arguments, folder, name, tmp_path / "out")
    assert name in error.what
    if name.endswith(".json"):
        assert re.search(rf"key p100 / ResNet-50 \(batch size 16\) / null|row {row}", error.what)
    else:
        assert f"row {row}" in error.what


@pytest.mark.parametrize(("source", "name", "arguments"), [one[:3] for one in FILES])
def test_another_line_end_and_a_byte_order_mark_change_nothing_but_the_digest(
    source: str, name: str, arguments: str, tmp_path: Path
) -> None:
    folder = copies(source, tmp_path)
    content = (folder / name).read_bytes()
    command = arguments.format(file=folder / name, folder=folder).split()
    first = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "one")])
    assert first.exception is None
    other = content.replace(b"\r\n", b"\n") if b"\r\n" in content else content.replace(b"\n", b"\r\n")
    (folder / name).write_bytes(b"\xef\xbb\xbf" + other)
    second = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "two")])
    assert second.exception is None, second.exception
    one, two = ((tmp_path / n / "card.md").read_text() for n in ("one", "two"))
    assert f": {IDENTICAL}" in one
    assert f"`{name}`" in two
    assert any(name in line and DIFFERENT in line for line in two.splitlines())
    assert one.partition("## How it was read")[2] == two.partition("## How it was read")[2]


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["philly", str(tmp_path), "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, TableError)
    assert "a file expected, not a folder" in str(done.exception)
    assert "one file of the folder" in done.exception.remedy
    assert not (tmp_path / "out").exists()
