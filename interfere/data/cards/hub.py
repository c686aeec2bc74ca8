"""Cards as files: of a table with Hugging Face's metadata in front, and Croissant; metadata in front of a model's card.

Croissant 1.0 (MLCommons, docs.mlcommons.org/croissant) describes files, their checksums and their columns as JSON-LD.
Hugging Face reads YAML in front of a card. Law: `card.md` of a table is what its rows tell, but for how they were
measured: the remark, the protocol and the command that measures again stay when the card is written anew.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interfere.data.cards.dataset_card import (
    CARD_FILE,
    MEASURE_AGAIN,
    PROTOCOL,
    PROTOCOL_BY_SOURCE,
    REMARK,
    dataset_card,
)
from interfere.data.tables import GROUPS_FILE, JOBS_FILE, PAIRS_FILE, Table, read_table
from interfere.errors import ModelError, UnfitError
from interfere.file_writing import write_text
from interfere.records import NAN
from interfere.reports.document import Document
from interfere.reports.numbers import format_date
from interfere.reports.text_forms import front_matter, markdown, without_front_matter

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
# Names of Croissant's own vocabulary in the recommended context of a description.
_CROISSANT_NAMES = (
    *("citeAs", "column", "extract", "field", "fileProperty", "fileObject", "fileSet", "format", "includes"),
    *("isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex", "repeated"),
    *("replace", "separator", "source", "subField", "transform"),
)
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{name: f"cr:{name}" for name in _CROISSANT_NAMES},
}


def write_hub_files(table_folder: Path, out: Path) -> list[Path]:
    """Write `README.md` and `croissant.json` of a table for publication beside its Parquet files; return both paths."""
    texts = {
        "README.md": dataset_readme(table_folder),
        "croissant.json": json.dumps(croissant(table_folder), indent=2, ensure_ascii=False) + "\n",
    }
    for name, text in texts.items():
        write_text(out / name, text)
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


def write_card(folder: Path, table: Table, *, command: str = "", note: str = "") -> Path:
    """Write the dataset card `card.md` into a table's folder, and return the path of the card."""
    text = _card_text(folder, table, dataset_card(table, command=command, note=note))
    write_text(folder / CARD_FILE, text)
    return folder / CARD_FILE


def dataset_readme(folder: Path) -> str:
    """Return the dataset card with Hugging Face's metadata in front, computed anew from the rows of a table.

    How it was measured, the remark and the command that measures again are those of the table's `card.md`.
    """
    path = folder / CARD_FILE
    before = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""

    def kept(pattern: str) -> str:
        found = re.search(pattern, before, re.MULTILINE | re.DOTALL)
        return found[1].strip() if found else ""

    table, protocol = read_table(folder), kept(f"^## {PROTOCOL}$(.*?)^## ")
    card = dataset_card(
        table,
        command=kept(f"^{MEASURE_AGAIN}`([^\n]*)`$"),
        note=kept(f"^- {REMARK}([^\n]*)$"),
        protocol=[" ".join(paragraph.split()) for paragraph in protocol.split("\n\n") if paragraph.strip()],
    )
    return _card_text(folder, table, card)


def rewrite_card(folder: Path) -> Path:
    """Write `card.md` of a measured table anew from its rows. Raises UnfitError for a table that was not measured here.

    The card of an imported table tells what the import read, which its rows do not.
    """
    if not _is_ours(read_table(folder)):
        remedy = "import the table again: the import writes its card"
        raise UnfitError("the card of an imported table cannot be computed from its rows", value=folder, remedy=remedy)
    write_text(folder / CARD_FILE, dataset_readme(folder))
    return folder / CARD_FILE


def _card_text(folder: Path, table: Table, card: Document) -> str:
    metadata = {
        "pretty_name": table.name,
        "license": "cc-by-4.0" if _is_ours(table) else "other",
        "language": ["en"],
        "task_categories": ["tabular-regression"],
        "tags": list(TAGS),
        "size_categories": [_size_category(len(table.pairs))],
        "configs": [{"config_name": path.stem, "data_files": path.name} for path in _parquet_files(folder)],
    }
    return front_matter(metadata) + markdown(card)


def model_readme(folder: Path) -> str:
    """Return the card of a published model with Hugging Face's metadata in front. Raises ModelError without a model."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        card = (folder / CARD_FILE).read_text(encoding="utf-8")
        tables = [str(entry["table"]) for entry in manifest["trained_on"]]
        metadata = model_metadata(str(manifest["model"]), tables, manifest["scores"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError("not a model folder", value=f"{folder}: {error}", remedy="name a published model") from None
    return front_matter(metadata) + without_front_matter(card)


def model_metadata(
    model: str, tables: Sequence[str], scores: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> dict[str, Any]:
    """Return the metadata of a model's card. `scores`: those of each model by split."""
    results = [
        {
            "task": {"type": "tabular-regression", "name": f"slowdown, split {split}"},
            "dataset": {"name": ", ".join(tables), "type": "co-location"},
            "metrics": [
                {"type": metric, "name": title, "value": float(f"{value:.4g}")}
                for metric, title in (("mae", "MAE of speed"), ("coverage", "coverage of the 90 % interval"))
                if isinstance(value := of_split[model].get(metric), float) and math.isfinite(value)
            ],
        }
        for split, of_split in scores.items()
        if model in of_split
    ]
    return {
        "library_name": "interfere",
        "license": "apache-2.0",
        "language": ["en"],
        "pipeline_tag": "tabular-regression",
        "tags": [*TAGS, "onnx"],
        "datasets": list(tables),
        "metrics": ["mae"],
        "model-index": [{"name": f"interfere {model}", "results": results}],
    }


def _parquet_files(folder: Path) -> list[Path]:
    return [folder / name for name in (PAIRS_FILE, JOBS_FILE, GROUPS_FILE) if (folder / name).is_file()]


def _is_ours(table: Table) -> bool:
    sources = {row.source for row in table.measurements} | {job.source for job in table.jobs}
    return sources <= set(PROTOCOL_BY_SOURCE)


def _size_category(rows: int) -> str:
    bounds = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"))
    return next((name for bound, name in bounds if rows < bound), "100K<n<1M")
