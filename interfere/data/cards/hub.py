"""Cards that other sites read: Croissant and Hugging Face's metadata of a table, and Hugging Face's of a model.

Croissant 1.0 (MLCommons, docs.mlcommons.org/croissant) describes files, their checksums and their columns as JSON-LD.
Hugging Face reads YAML in front of a card; the text behind it is the card of the table or of the model itself.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interfere.data.cards.dataset_card import PROTOCOL_BY_SOURCE, dataset_card
from interfere.data.tables import GROUPS_FILE, JOBS_FILE, PAIRS_FILE, Table, read_table
from interfere.errors import ModelError
from interfere.file_writing import write_atomically
from interfere.records import NAN
from interfere.reports.numbers import format_date
from interfere.reports.text_forms import markdown

if TYPE_CHECKING:
    import pyarrow as pa

TAGS = ("gpu", "scheduling", "co-location", "interference")
MEANINGS = {
    "victim": "the job that is slowed down",
    "neighbour": "the job beside it",
    "slowdown": "metric of the victim beside the neighbour, over its metric alone",
    "lower": "lower end of the 95 % interval of the slowdown",
    "upper": "upper end of the 95 % interval of the slowdown",
    "passes": "slowdown of each measured block",
    "mode": "how the jobs share the device",
    "status": "ok, unstable or infeasible",
    "workload": "the job",
}
UNITS = {"_s": "seconds", "_bytes": "bytes", "_frac": "share, 0 to 1", "_w": "watts", "_per_step": "per step"}
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


def write_hub_files(table_folder: Path, out: Path) -> list[Path]:
    """Write `README.md` and `croissant.json` of a table for publication beside its Parquet files; return both paths."""
    texts = {
        "README.md": dataset_readme(table_folder),
        "croissant.json": json.dumps(croissant(table_folder), indent=2, ensure_ascii=False) + "\n",
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_atomically(out / name, lambda temporary, text=text: Path(temporary).write_text(text, encoding="utf-8"))
    return [out / name for name in texts]


def croissant(folder: Path) -> dict[str, Any]:
    """Return the Croissant description of a table: its files with checksums, and their columns.

    Columns that hold records, such as kernels, are left out: Croissant has no form for lists of them.
    """
    import pyarrow.parquet as pq

    table, files = read_table(folder), _parquet_files(folder)
    newest_s = max((row.measured_at_s for row in table.measurements if not math.isnan(row.measured_at_s)), default=NAN)
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": table.name,
        "description": f"Slowdowns of {len(table.jobs)} jobs beside each other on one device: "
        f"{len(table.pairs)} ordered pairs, with the profile of each job alone.",
        "license": "https://creativecommons.org/licenses/by/4.0/" if _is_ours(table) else "that of its publisher",
        "keywords": list(TAGS),
        **({} if math.isnan(newest_s) else {"datePublished": format_date(newest_s)}),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": path.name,
                "name": path.name,
                "contentUrl": path.name,
                "encodingFormat": "application/x-parquet",
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in files
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": path.stem,
                "name": path.stem,
                "field": [
                    field for column in pq.read_schema(path) if (field := _croissant_field(path, column)) is not None
                ],
            }
            for path in files
        ],
    }


def _croissant_field(path: Path, column: "pa.Field") -> dict[str, Any] | None:
    import pyarrow as pa

    is_list = pa.types.is_list(column.type)
    kind = column.type.value_type if is_list else column.type
    if pa.types.is_struct(kind) or pa.types.is_list(kind):
        return None
    tests = (
        (pa.types.is_boolean, "sc:Boolean"),
        (pa.types.is_integer, "sc:Integer"),
        (pa.types.is_floating, "sc:Float"),
    )
    data_type = next((name for is_kind, name in tests if is_kind(kind)), "sc:Text")
    field = {
        "@type": "cr:Field",
        "@id": f"{path.stem}/{column.name}",
        "name": column.name,
        "dataType": data_type,
        "source": {"fileObject": {"@id": path.name}, "extract": {"column": column.name}},
    }
    meaning = MEANINGS.get(column.name) or next((unit for end, unit in UNITS.items() if column.name.endswith(end)), "")
    return field | ({"description": meaning} if meaning else {}) | ({"repeated": True} if is_list else {})


def dataset_readme(folder: Path) -> str:
    """Return the dataset card with Hugging Face's metadata in front."""
    table = read_table(folder)
    header = {
        "pretty_name": table.name,
        "license": "cc-by-4.0" if _is_ours(table) else "other",
        "task_categories": ["tabular-regression"],
        "tags": list(TAGS),
        "size_categories": [_size_category(len(table.pairs))],
        "configs": [{"config_name": path.stem, "data_files": path.name} for path in _parquet_files(folder)],
    }
    return f"{_front_matter(header)}\n{markdown(dataset_card(table))}"


def model_readme(folder: Path) -> str:
    """Return the card of a published model with Hugging Face's metadata in front. Raises ModelError without a model."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        card = (folder / "card.md").read_text(encoding="utf-8")
        name, scores = str(manifest["model"]), manifest["scores"]
        tables = [str(entry["table"]) for entry in manifest["trained_on"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError("not a model folder", value=f"{folder}: {error}", remedy="name a published model") from None
    results = [
        {
            "task": {"type": "tabular-regression", "name": f"slowdown, split {split}"},
            "dataset": {"name": ", ".join(tables), "type": "co-location"},
            "metrics": [
                {"type": metric, "name": title, "value": value}
                for metric, title in (("mae", "MAE of speed"), ("coverage", "coverage of the 90 % interval"))
                if isinstance(value := of_split[name].get(metric), float) and math.isfinite(value)
            ],
        }
        for split, of_split in scores.items()
        if name in of_split
    ]
    header = {
        "library_name": "interfere",
        "license": "apache-2.0",
        "pipeline_tag": "tabular-regression",
        "tags": [*TAGS, "onnx"],
        "datasets": tables,
        "model-index": [{"name": f"{name} {manifest['version']}", "results": results}],
    }
    return f"{_front_matter(header)}\n{card}"


def _front_matter(header: Mapping[str, Any]) -> str:
    """Return metadata as YAML between its marks: every value in JSON's form, which YAML reads too."""
    lines = (f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in header.items())
    return "\n".join(("---", *lines, "---", ""))


def _parquet_files(folder: Path) -> list[Path]:
    return [folder / name for name in (PAIRS_FILE, JOBS_FILE, GROUPS_FILE) if (folder / name).is_file()]


def _is_ours(table: Table) -> bool:
    sources = {row.source for row in table.measurements} | {job.source for job in table.jobs}
    return sources <= set(PROTOCOL_BY_SOURCE)


def _size_category(rows: int) -> str:
    bounds = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"))
    return next((name for bound, name in bounds if rows < bound), "100K<n<1M")
