"""An import is written whole or not at all, and never over something else."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.commands.data.group import app
from interfere.data.importers.import_result import ImportResult, Notice, SourceFile, Treatment
from interfere.data.importers.import_writer import import_card, write_import
from interfere.data.public_tables import public_tables
from interfere.data.tables import read_table
from interfere.data.traces import JobTrace, TraceJob, read_trace
from interfere.errors import ConflictError, TableError, UnfitError
from interfere.reports.text_forms import markdown
from tests.data.sample_table import TABLE

FILE = SourceFile(path=Path("x.json"), sha256="0" * 64)
NOTICE = Notice(treatment=Treatment.DROPPED, subject="rows | of a kind", count=3, reason="for a reason")
WHOLE = ImportResult(
    source_format="gavel",
    files=(FILE,),
    format_notes=("a fact",),
    notices=(NOTICE,),
    jobs=TABLE.jobs,
    pairs=TABLE.pairs,
)
TRACE = JobTrace(name="t", jobs=(TraceJob(job_id="1", workload="w", arrival_s=0.0, gpus=2, user="u", status="failed"),))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_jobs_pairs_and_card_are_there_and_read_back(tmp_path: Path) -> None:
    files = write_import(tmp_path / "a" / "b", WHOLE)
    assert [path.name for path in files] == ["card.md", "jobs.parquet", "pairs.parquet"]
    assert repr(read_table(tmp_path / "a" / "b").pairs) == repr(TABLE.pairs)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["b"]


def test_an_earlier_import_is_replaced_whole(tmp_path: Path) -> None:
    write_import(tmp_path / "out", WHOLE)
    write_import(tmp_path / "out", ImportResult(source_format="helios", files=(FILE,), format_notes=(), trace=TRACE))
    assert sorted(contents(tmp_path / "out")) == ["card.md", "clusters.parquet", "trace.parquet"]
    assert read_trace(tmp_path / "out").jobs[0].gpus == 2


def test_anything_else_in_the_target_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("keep")
    (tmp_path / "file").write_text("keep")
    write_import(tmp_path / "measured", WHOLE)
    (tmp_path / "measured" / "card.md").write_text("# Table")
    for name in ("notes", "file", "measured"):
        before = contents(tmp_path / name) if name != "file" else {}
        with pytest.raises(ConflictError, match="target"):
            write_import(tmp_path / name, WHOLE)
        assert name == "file" or contents(tmp_path / name) == before


def test_a_table_that_breaks_a_rule_leaves_the_target_as_it_was(tmp_path: Path) -> None:
    write_import(tmp_path / "out", WHOLE)
    before = contents(tmp_path / "out")
    with pytest.raises(TableError, match="no profile"):
        write_import(
            tmp_path / "out", ImportResult(source_format="gavel", files=(FILE,), format_notes=(), pairs=TABLE.pairs)
        )
    assert contents(tmp_path / "out") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    with pytest.raises(UnfitError, match="cannot write"):
        write_import(Path("/proc/nowhere/out"), WHOLE)


def test_the_card_counts_explains_and_names_the_source() -> None:
    text = markdown(import_card("own", WHOLE))
    assert text.startswith("# Imported `own` (gavel)")
    assert "| dropped | 3 | rows \\| of a kind | for a reason |" in text
    assert "differs from every published file" in text
    known = public_tables()[0]
    files = (SourceFile(path=Path(known.file), sha256=known.sha256),)
    same = markdown(import_card("own", ImportResult(source_format=known.kind, files=files, format_notes=())))
    assert "byte-identical to the published file" in same
    assert known.licence in same
    assert "Nothing was dropped" in same
    imported = ImportResult(source_format="helios", files=(FILE,), format_notes=(), trace=TRACE)
    trace = markdown(import_card("own", imported))
    assert "- by devices asked: 2: 1" in trace
    assert "failed 1" in trace


def test_sources_name_address_licence_and_digest_of_each_table() -> None:
    done = CliRunner().invoke(app, ["sources", "--json"])
    rows = json.loads(done.stdout)["sources"]
    assert {row["kind"] for row in rows} == {"gavel", "philly", "lucid", "helios", "orion", "nsight", "parvagpu"}
    for row in rows:
        assert "https://" in row["upstream"]
        assert row["licence"]
        assert len(row["sha256"]) == 64
    assert "S-Lab" in CliRunner().invoke(app, ["sources"]).stdout


def test_the_command_reports_what_was_imported_and_what_was_not(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"k80": {"A3C": {"null": 4.0, "A3C": [0.0, 0.0]}}}')
    command = ["import", "gavel", str(tmp_path / "t.json"), "--no-static", "--out", str(tmp_path / "out")]
    document = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert (document["jobs"], document["pairs"], document["feasible"], document["infeasible"]) == (1, 1, 0, 1)
    assert document["notices"][0]["fate"] == "flagged"
    assert document["read"][0]["published"].startswith("differs")
    assert "infeasible" in CliRunner().invoke(app, command).stdout


def test_each_kind_has_its_command(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["import", "--help"]).stdout
    for kind in ("gavel", "lucid", "helios", "philly", "nsight", "orion", "dcgm"):
        assert kind in shown
        missing = CliRunner().invoke(app, ["import", kind, str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")])
        assert isinstance(missing.exception, TableError)
        assert not (tmp_path / "out").exists()
