"""Lets a workspace be moved or copied: MLflow's database names its artifacts by absolute addresses.

Whenever the workspace is opened in another place than the database names, the addresses of its own artifact folder are
rewritten in one transaction. Law: addresses outside the workspace's artifact folder are never touched.
"""

import sqlite3
from pathlib import Path

from interfere.errors import UnavailableError

DATABASE, ARTIFACTS = "mlflow.db", "mlartifacts"
# Columns that hold the address of an artifact; what a release of MLflow does not have is skipped.
COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
_LOCK_TIMEOUT_S = 10.0  # another process writes to the database


def artifact_root(work: Path) -> str:
    """The address of the workspace's artifact folder."""
    return (work / ARTIFACTS).resolve().as_uri()


def adopt_artifacts(work: Path, experiment: str) -> str:
    """Rewrite addresses that still name the place from which the workspace came; that place, "" where nothing moved.

    Raises UnavailableError where the database cannot be written.
    """
    path, root = work / DATABASE, artifact_root(work)
    if not path.is_file() or not any((work / ARTIFACTS).glob("*")):
        return ""  # without its artifacts the database says best where they are
    try:
        connection = sqlite3.connect(path, timeout=_LOCK_TIMEOUT_S)
        try:
            before = _recorded_root(connection, experiment)
            if before in ("", root):
                return ""
            with connection:  # one transaction
                for table, column in COLUMNS:
                    if column in _columns(connection, table):
                        _rewrite(connection, table, column, before, root)
            return before
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise UnavailableError(
            f"the workspace was moved, and its database cannot be brought along ({error})",
            value=path,
            remedy="let other commands in this workspace end, make it writable, then retry",
        ) from None


def _recorded_root(connection: sqlite3.Connection, experiment: str) -> str:
    """The artifact folder that the database names; "" where there is none yet, or where it is a server's."""
    if "artifact_location" not in _columns(connection, "experiments"):
        return ""
    row = connection.execute("SELECT artifact_location FROM experiments WHERE name = ?", (experiment,)).fetchone()
    location = str(row[0]) if row and row[0] else ""
    return location if location.startswith("file:") and location.endswith(f"/{ARTIFACTS}") else ""


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def _rewrite(connection: sqlite3.Connection, table: str, column: str, before: str, root: str) -> None:
    connection.execute(
        f"UPDATE {table} SET {column} = ? || substr({column}, ?) "  # noqa: S608 - our own table and column names
        f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
        (root, len(before) + 1, before, len(before) + 1, f"{before}/"),
    )
