"""The public tables and their published folds; `python -m tests.training.evaluation.published_splits` writes checksums.

Only for a table that is new, or for a new version: published folds never change.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from interfere.data.importers.gavel import import_gavel
from interfere.data.importers.lucid import import_lucid
from interfere.data.importers.parvagpu import import_parvagpu
from interfere.data.loading import load_table
from interfere.data.tables import Table
from interfere.features.pair import FeatureEncoder
from interfere.training.dataset import Dataset, build_dataset
from interfere.training.evaluation import splits
from tests.data.importers.public_files import public


def _imported(table: Callable[[Path], object], file: str) -> Callable[[], Table]:
    def read() -> Table:
        result = table(public(file))
        return Table(name=file, jobs=tuple(result.jobs), pairs=tuple(result.pairs))  # type: ignore[attr-defined]  # an ImportResult

    return read


PUBLIC_TABLES: Mapping[str, Callable[[], Table]] = {
    "cpu": lambda: load_table("cpu"),
    "cpu-groups": lambda: load_table("cpu-groups"),
    "cpu-priority": lambda: load_table("cpu-priority"),
    "gavel": _imported(import_gavel, "gavel/oracle_throughputs.json"),
    "lucid": _imported(import_lucid, "lucid"),
    "parvagpu": _imported(import_parvagpu, "parvagpu"),
}


def public_dataset(name: str) -> Dataset:
    """The dataset of a public table; skips a test where its file is missing."""
    return build_dataset([PUBLIC_TABLES[name]()], FeatureEncoder())


def main() -> None:
    """Write the file of each version."""
    for version in splits.VERSIONS:
        tables = {name: splits.splits_record(public_dataset(name), version) for name in PUBLIC_TABLES}
        path = Path(splits.__file__).with_name(f"splits_{version}.json")
        path.write_text(json.dumps(tables, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
