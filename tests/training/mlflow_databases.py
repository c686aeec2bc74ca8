"""New databases of MLflow in a moment: the first of a test run is made by its migrations, the others are copies."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session", autouse=True)
def copied_databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """MLflow runs all migrations of its history for an empty database: more than a second of CPU each time."""
    from mlflow.store.db import utils

    made, migrate = tmp_path_factory.mktemp("mlflow") / "empty.db", utils._initialize_tables

    def make_tables(engine: Any) -> None:
        if engine.url.get_backend_name() != "sqlite":
            migrate(engine)
        elif made.is_file():
            copy_database(made, engine.url.database)
        else:
            migrate(engine)
            copy_database(engine.url.database, made)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "_initialize_tables", make_tables)
        yield


def copy_database(source: str | Path, target: str | Path) -> None:
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
