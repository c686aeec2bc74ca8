"""Cards for other sites: what they say of files, columns and scores is what the files hold."""

import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from interfere.cli import main
from interfere.config import SHIPPED_GPU_MODEL
from interfere.data.cards.hub import croissant, dataset_readme, model_readme
from interfere.data.loading import shipped_table
from interfere.errors import ModelError

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
        assert found[f"slowdown, split {split}", "mae"] == manifest["scores"][split][manifest["model"]]["mae"]
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
