"""Cards for other sites: what they say of files, columns and scores is what the files hold."""

import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from interfere.cli import main
from interfere.config import SHIPPED_GPU_MODEL, SHIPPED_MODEL
from interfere.data.cards.hub import croissant, dataset_readme, model_readme, rewrite_card
from interfere.data.loading import shipped_table, shipped_tables
from interfere.data.tables import read_table, write_table
from interfere.errors import ModelError, UnfitError

PYTHON_TYPES = {"sc:Text": str, "sc:Float": float, "sc:Integer": int, "sc:Boolean": bool}


def front_matter(text: str) -> dict:
    """The metadata that Hugging Face reads."""
    _, yaml_text, _ = text.split("---\n", 2)
    return dict(yaml.safe_load(yaml_text))


@pytest.mark.parametrize("name", ["cpu", "cpu-groups"])
def test_a_croissant_names_files_with_their_checksums_and_their_columns(name: str) -> None:
    folder = shipped_table(name)
    document = json.loads(json.dumps(croissant(folder)))
    assert document["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    files = {each["@id"]: each for each in document["distribution"]}
    assert set(files) >= {"pairs.parquet", "jobs.parquet"}
    for file, described in files.items():
        assert described["sha256"] == hashlib.sha256((folder / file).read_bytes()).hexdigest()
    for records in document["recordSet"]:
        table = pq.read_table(folder / f"{records['@id']}.parquet")
        for field in records["field"]:
            assert field["source"]["fileObject"]["@id"] in files
            values = table.column(field["source"]["extract"]["column"]).drop_null().to_pylist()
            if field.get("repeated"):
                values = [item for value in values for item in value]
            assert {type(value) for value in values} <= {PYTHON_TYPES[field["dataType"]]}, field["name"]
    pairs = next(records for records in document["recordSet"] if records["@id"] == "pairs")
    assert {"victim", "neighbour", "slowdown"} <= {field["name"] for field in pairs["field"]}


def test_a_dataset_card_has_metadata_in_front_of_the_card() -> None:
    text = dataset_readme(shipped_table("cpu"))
    header = front_matter(text)
    assert (header["license"], header["size_categories"]) == ("cc-by-4.0", ["n<1K"])
    assert {each["data_files"] for each in header["configs"]} == {"pairs.parquet", "jobs.parquet"}
    assert text.split("---\n", 2)[2].lstrip().startswith("# Table `cpu`")


@pytest.mark.parametrize("name", shipped_tables())
def test_a_shipped_card_is_what_the_rows_of_its_table_tell_today(name: str) -> None:
    """Another remark, protocol or command than the card has cannot come of it: they are how the table was measured."""
    folder = shipped_table(name)
    card = (folder / "card.md").read_text(encoding="utf-8")
    assert card == dataset_readme(folder), f"write it anew: interfere data card {name} --rewrite"
    for part in ("- remark: ", "\nMeasure again: `interfere profile campaign", "Cite as: ", "## What it does not tell"):
        assert part in card


@pytest.mark.parametrize("folder", [SHIPPED_MODEL, SHIPPED_GPU_MODEL])
def test_the_card_of_a_shipped_model_has_its_metadata_and_says_what_it_is_for(folder: Path) -> None:
    card = (folder / "card.md").read_text(encoding="utf-8")
    assert card == model_readme(folder)
    assert {"license", "language", "tags", "pipeline_tag", "datasets"} <= front_matter(card).keys()
    for title in ("Intended use", "Out of scope", "Limits", "Licence and citation"):
        assert f"\n## {title}\n" in card


def test_no_table_of_a_card_has_more_than_seven_columns() -> None:
    folders = [*map(shipped_table, shipped_tables()), SHIPPED_MODEL, SHIPPED_GPU_MODEL]
    for folder in folders:
        for line in (folder / "card.md").read_text(encoding="utf-8").splitlines():
            assert not line.startswith("|") or line.count("|") <= 8, line


def test_a_card_that_is_written_anew_keeps_how_the_table_was_measured(tmp_path: Path) -> None:
    folder = tmp_path / "cpu"
    shutil.copytree(shipped_table("cpu"), folder)
    path = folder / "card.md"
    protocol, command = "Blocks of `A` and `B`.\n\nMeasured by hand.", "interfere profile campaign --jobs a"
    text = re.sub("## Protocol.*## Jobs", f"## Protocol\n\n{protocol}\n\n## Jobs", path.read_text(), flags=re.DOTALL)
    text = re.sub("Measure again: .*", f"Measure again: `{command}`", text).replace("- remark: 914", "- remark: 915")
    path.write_text(text.replace("256 ordered pairs", "7 ordered pairs"))
    assert rewrite_card(folder).read_text() == text
    path.unlink()
    fresh = rewrite_card(folder).read_text()
    assert "remark" not in fresh
    assert "Measured by hand" not in fresh


def test_the_card_of_an_import_is_not_written_anew(tmp_path: Path) -> None:
    table = read_table(shipped_table("cpu"))
    write_table(tmp_path / "t", replace(table, pairs=tuple(replace(pair, source="gavel") for pair in table.pairs)))
    with pytest.raises(UnfitError, match="import the table again"):
        rewrite_card(tmp_path / "t")


def test_a_model_card_has_the_scores_of_its_manifest() -> None:
    header = front_matter(model_readme(SHIPPED_GPU_MODEL))
    manifest = json.loads((SHIPPED_GPU_MODEL / "manifest.json").read_text())
    (model,) = header["model-index"]
    found = {
        (result["task"]["name"], metric["type"]): metric["value"]
        for result in model["results"]
        for metric in result["metrics"]
    }
    for split in ("pair", "job"):
        mae = manifest["scores"][split][manifest["model"]]["mae"]
        assert found[f"slowdown, split {split}", "mae"] == float(f"{mae:.4g}")
    assert header["datasets"] == ["gavel"]


def test_the_commands_write_them(tmp_path: Path) -> None:
    for arguments in (
        ("data", "card", "cpu", "--hub", str(tmp_path / "table"), "--work", str(tmp_path)),
        ("models", "card", "cpu", "--out", str(tmp_path / "model.md")),
    ):
        with pytest.raises(SystemExit) as stop:
            main(list(arguments))
        assert stop.value.code == 0
    assert sorted(path.name for path in (tmp_path / "table").iterdir()) == ["README.md", "croissant.json"]
    assert front_matter((tmp_path / "model.md").read_text())["library_name"] == "interfere"
    with pytest.raises(ModelError, match="not a model folder"):
        model_readme(tmp_path)
