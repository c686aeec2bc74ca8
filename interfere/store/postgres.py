"""The store in a PostgreSQL database, which several servers share.

Law: numbers of rows are given in the order of commits. A counter row, locked until the transaction ends, gives them:
numbers of a sequence are given before the commit, and a reader that follows them misses rows.

Every transaction is READ COMMITTED and waits for the disk. What must not run side by side waits for one advisory lock,
one counter row or one row of a ledger. The tables are those of the SQLite file without its checksums, since PostgreSQL
has its own (`initdb --data-checksums`); fields of observations that are searched are columns. The view `observed` has
all fields, as jsonb, for people and for Grafana.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolTimeout

from interfere.errors import ConflictError, InterfereError, UnavailableError, UnfitError
from interfere.store.checked_rows import RowKind, UnreadableRow
from interfere.store.database import Connection, EvictionListener, Parameters
from interfere.time_budget import check_interruption

T = TypeVar("T")
_log = logging.getLogger(__name__)
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it warns at every attempt, several times a second
MAX_CONNECTIONS = 4  # of one process, and two of its own; PostgreSQL takes 100 by default
CONNECT_S = 10.0  # that a call waits for a connection while the database answers
AWAY_S = 0.5  # that a call waits for one after the last attempt has failed
TRY_S = 0.1  # between two looks at whether an attempt has failed
RETRY_S = 0.5  # hint to callers while the database is away
LOCK_ID = 0x1F7E_4FE5  # of advisory locks; the second key names what is serialized
CLAIM_ID = 0x1F7E_4FE6  # of those that are hints
CLAIM_POLL_S = 0.02  # between two looks at whether another server has done its work
_AWAY = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,
    PoolTimeout,
)
# A host that has lost its power or its network is noticed within half a minute, at both ends: what it had locked is
# free again. Seconds, but for the last (ms).
_DEAD_PEERS = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 10_000}
_OF_SESSION = {
    "tcp_keepalives_idle": "10s",
    "tcp_keepalives_interval": "5s",
    "tcp_keepalives_count": "3",
    "idle_in_transaction_session_timeout": "30s",  # of a process that was stopped amid a write: others write then
    "default_transaction_isolation": "read committed",
}
LOOK_EVERY_S = 1.0  # by a follower that no notification reaches
PAUSE_S = 0.05  # between two looks: many small writes cost few looks
CHANNEL = "interfere"  # of notifications about new observations and profiles
FORMAT = 1  # of the tables, in `store_format`
_TABLES = """
CREATE TABLE store_format (format integer NOT NULL, made_s double precision NOT NULL);
CREATE TABLE number (name text PRIMARY KEY, last bigint NOT NULL);
CREATE TABLE account (
    seq bigserial UNIQUE, rowid bigint GENERATED ALWAYS AS (seq) STORED, decision_id text PRIMARY KEY,
    scope text NOT NULL, request bytea NOT NULL, answer bytea NOT NULL, model_version text NOT NULL,
    learned_upto bigint NOT NULL, facts text NOT NULL);
CREATE INDEX account_scope ON account (scope, seq);
CREATE TABLE profile (
    seq bigserial UNIQUE, rowid bigint GENERATED ALWAYS AS (seq) STORED, id text PRIMARY KEY, content text NOT NULL);
CREATE TABLE registered (id text PRIMARY KEY, caller text NOT NULL);
CREATE TABLE observation (
    seq bigint PRIMARY KEY, rowid bigint GENERATED ALWAYS AS (seq) STORED, id text NOT NULL UNIQUE,
    content text NOT NULL, kind text NOT NULL, result text NOT NULL, reason text NOT NULL,
    received_s double precision NOT NULL,
    job_id text GENERATED ALWAYS AS (content::json ->> 'job_id') STORED,
    workload text GENERATED ALWAYS AS (content::json ->> 'workload') STORED,
    device_type text GENERATED ALWAYS AS (content::json ->> 'device_type') STORED,
    reporter text GENERATED ALWAYS AS (content::json ->> 'reporter') STORED,
    slowdown double precision GENERATED ALWAYS AS ((content::json ->> 'slowdown')::double precision) STORED,
    end_s double precision GENERATED ALWAYS AS ((content::json ->> 'end_s')::double precision) STORED,
    bytes double precision GENERATED ALWAYS AS ((content::json ->> 'bytes')::double precision) STORED,
    to_sequence bigint GENERATED ALWAYS AS ((content::json ->> 'to_sequence')::bigint) STORED,
    undoes bigint GENERATED ALWAYS AS ((content::json ->> 'undoes')::bigint) STORED);
CREATE INDEX observation_kind ON observation (kind) WHERE kind <> 'progress';
CREATE INDEX observation_usage ON observation (job_id, end_s) WHERE kind = 'memory_usage';
CREATE VIEW observed AS
    SELECT seq, to_timestamp(received_s) AS received, to_timestamp(end_s) AS ended, kind, result, reason, reporter,
        job_id, workload, device_type, slowdown, bytes, content::jsonb AS content FROM observation;
CREATE TABLE decision (
    seq bigserial UNIQUE, rowid bigint GENERATED ALWAYS AS (seq) STORED, scope text NOT NULL,
    snapshot_id text NOT NULL, digest text NOT NULL, content bytea NOT NULL, PRIMARY KEY (scope, snapshot_id));
CREATE TABLE snapshot (
    rowid bigserial, seq bigint NOT NULL, key text NOT NULL, content bytea NOT NULL, PRIMARY KEY (key, seq));
CREATE TABLE ledger (
    rowid bigserial, scope text PRIMARY KEY, revision bigint NOT NULL, now_s double precision NOT NULL);
CREATE TABLE promise (
    rowid bigserial, scope text NOT NULL, place integer NOT NULL, job_id text NOT NULL, content text NOT NULL,
    PRIMARY KEY (scope, place));
CREATE INDEX promise_job ON promise (job_id);
CREATE TABLE granted (
    rowid bigserial, scope text NOT NULL, kind text NOT NULL, place integer NOT NULL, content text NOT NULL,
    PRIMARY KEY (scope, kind, place));
CREATE TABLE planned (
    rowid bigserial, scope text NOT NULL, kind text NOT NULL, place integer NOT NULL, content text NOT NULL,
    PRIMARY KEY (scope, kind, place));
INSERT INTO number VALUES ('observation', 0);
"""
_MIGRATIONS: dict[int, str] = {0: _TABLES}  # by the format that they begin from; 0: an empty schema
_NAMED = re.compile(r"(?<!:):([a-z_]+)")


class PostgresDatabase:
    """A pool of connections to one database. Any number of servers and workers may write."""

    def __init__(
        self, address: str, *, read_only: bool = False, on_eviction: EvictionListener = lambda *_: None
    ) -> None:
        """Connect to a database, and make its tables where it has none.

        `address`: as libpq reads it, e.g. `postgresql://interfere@db.example/interfere`, or with the parameter
        `password_file`, a file that holds the password alone. Raises UnavailableError where it cannot be reached,
        UnfitError where its tables are of a newer release, its rights do not suffice or the file cannot be read.
        """
        self._address, self._read_only, self.on_eviction = address, read_only, on_eviction
        self._listening: psycopg.Connection[Any] | None = None
        self._claiming: psycopg.Connection[Any] | None = None
        self._making_connection = threading.Lock()
        self._is_away = False  # the last attempt to connect has failed
        with self._translated_errors():
            self._parameters = _connection_parameters(address)
        self._pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
            min_size=1,
            max_size=MAX_CONNECTIONS,
            kwargs=self._parameters,
            configure=self._configure,
            check=ConnectionPool.check_connection,
            reconnect_timeout=0.0,  # attempts are made when calls need a connection, and calls learn that one failed
            reconnect_failed=self._note_failure,
            open=False,
        )
        try:
            with self._translated_errors():
                self._connect().close()  # says at once what is wrong
                self._pool.open()
            self._migrate()
        except InterfereError:
            self.close()
            raise

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(**self._parameters)

    def _configure(self, connection: psycopg.Connection[Any]) -> None:
        for name, value in _OF_SESSION.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        if self._read_only:
            connection.execute("SET default_transaction_read_only = on")
        if self._is_away:
            _log.warning("the database is back")
        self._is_away = False

    def _note_failure(self, _: object) -> None:
        if not self._is_away:
            _log.warning("the database is away; what needs it waits or is refused until it is back")
        self._is_away = True

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Give a connection of the pool. Raises UnavailableError as soon as the database is known to be away."""
        with self._translated_errors():
            was_away = self._is_away
            end_s = time.monotonic() + (AWAY_S if was_away else CONNECT_S)
            while True:
                try:
                    connection = self._pool.getconn(timeout=TRY_S)
                    break
                except PoolTimeout:
                    if time.monotonic() >= end_s or (self._is_away and not was_away):
                        raise
            try:
                with connection:
                    yield connection
            finally:
                self._pool.putconn(connection)

    def _migrate(self) -> None:
        """Make or upgrade the tables, one server at a time. Raises UnfitError where they are of a newer release."""
        with self._connection() as connection, connection.transaction():
            if not self._read_only:
                _lock(connection, "format")
            made = connection.execute("SELECT to_regclass('store_format') IS NOT NULL").fetchone()
            found = 0
            if made and made[0]:
                found = connection.execute("SELECT max(format) FROM store_format").fetchone()[0]  # type: ignore[index]
            if found > FORMAT:
                raise UnfitError(
                    "the store was written by a newer release",
                    value=f"{self._address}, format {found}, this release reads {FORMAT}",
                    remedy="upgrade interfere, which keeps everything; or give another database",
                )
            if self._read_only and found != FORMAT:
                raise UnfitError(
                    "not a store of this release",
                    value=f"{self._address}, format {found}, this release reads {FORMAT}",
                    remedy="start a server on it once: that makes or upgrades the tables",
                )
            for version in range(found, FORMAT):
                connection.execute(sql.SQL(_MIGRATIONS[version]))
            if found < FORMAT:
                connection.execute("INSERT INTO store_format VALUES (%s, %s)", (FORMAT, time.time()))

    @contextmanager
    def transaction(self, serialized: str = "") -> Iterator["_Translating"]:
        """Give a connection inside one transaction, which is committed at the end and rolled back on any exception."""
        with self._connection() as connection, connection.transaction():
            if serialized:
                _lock(connection, serialized)
                connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, serialized))
            yield _Translating(connection)

    @contextmanager
    def read_connection(self) -> Iterator["_Translating"]:
        """Give a connection for single queries."""
        with self._connection() as connection:
            yield _Translating(connection)

    @contextmanager
    def snapshot(self) -> Iterator["_Translating"]:
        """Give a connection for several queries that all see the store at one moment."""
        with self._connection() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield _Translating(connection)

    def selected(self, kind: RowKind[Any]) -> str:
        """Return the rowid, the checksum and all columns of a kind of row, as SQL."""
        return kind.sql_row("NULL")

    def set_aside(self, rows: Sequence[UnreadableRow]) -> None:
        """Tell the operator which rows cannot be read. They stay, and are left out wherever they are read."""
        for row in rows:
            _log.error("the store: %s; everything else is served", row)

    def text(self, field: str) -> str:
        """Return the column of a text in the content of an observation."""
        return field

    def number(self, field: str) -> str:
        """Return the column of a number in the content of an observation."""
        return field

    def take_numbers(self, connection: Connection, table: str, count: int) -> int:
        """Take the next numbers of a table; other transactions that want some wait until this one ends."""
        last = connection.execute("UPDATE number SET last = last + ? WHERE name = ? RETURNING last", (count, table))
        connection.execute("SELECT pg_notify(?, ?)", (CHANNEL, table))
        return int(last.fetchone()[0]) - count + 1

    def set_last_number(self, connection: Connection, table: str) -> None:
        """Let the next number of a table follow the largest one in it."""
        largest = f"(SELECT coalesce(max(seq), 0) FROM {table})"  # noqa: S608 - our own names
        connection.execute(f"UPDATE number SET last = {largest} WHERE name = ?", (table,))  # noqa: S608

    def follow(self, learn: Callable[[], None]) -> Callable[[], None]:
        """Call `learn` in a thread whenever some server has appended observations or changed profiles, and every
        second, until the function that is returned is called."""
        closed = threading.Event()
        thread = threading.Thread(target=self._follow, args=(learn, closed), name="store-follower", daemon=True)
        thread.start()

        def close() -> None:
            """Stop following, and wait until the thread has ended."""
            closed.set()
            thread.join()

        return close

    def _follow(self, learn: Callable[[], None], closed: threading.Event) -> None:
        is_away = False
        while not closed.is_set():
            self._wait_for_change(LOOK_EVERY_S)
            try:
                learn()
                is_away = False
            except InterfereError as error:
                if not is_away and not closed.is_set():
                    _log.warning("what other servers write is not seen now: %s", error.one_line)
                is_away = True
            except Exception:
                _log.exception("what other servers write cannot be learned; the next try follows")
            closed.wait(PAUSE_S)

    def _wait_for_change(self, timeout_s: float) -> None:
        """Wait until a transaction notifies the channel, or until the time is over."""
        deadline_s = time.monotonic() + timeout_s
        try:
            if self._listening is None or self._listening.closed:
                self._listening = self._connect()
                self._listening.execute(f"LISTEN {CHANNEL}")
                return  # what came before is not told
            for _ in self._listening.notifies(timeout=timeout_s, stop_after=1):
                return
        except psycopg.Error:
            if self._listening is not None:
                self._listening.close()
            time.sleep(max(0.0, deadline_s - time.monotonic()))

    @contextmanager
    def claim(self, work: str, patience_s: float) -> Iterator[None]:
        """Wait while another server does the same work, for some time, and let others wait meanwhile.

        It is a hint: where the lock cannot be had, or is lost with its connection, the block runs all the same.
        """
        end_s = time.monotonic() + patience_s
        is_held: bool | None = False  # None: not known, as the caller was interrupted while it asked
        try:
            with suppress(psycopg.Error):
                while not is_held and time.monotonic() < end_s:
                    is_held = None
                    is_held = self._claims("pg_try_advisory_lock", work)
                    if not is_held:
                        time.sleep(CLAIM_POLL_S)
                        check_interruption()
            yield
        finally:
            if is_held is not False:
                with suppress(psycopg.Error):
                    self._claims("pg_advisory_unlock", work)

    def _claims(self, function: str, work: str) -> bool:
        """Return what a function of PostgreSQL says about the lock of a piece of work, on a connection that holds the
        locks of this process."""
        with self._making_connection:
            if self._claiming is None or self._claiming.closed:
                self._claiming = self._connect()
                self._configure(self._claiming)
        query = sql.SQL("SELECT {}(%s, hashtext(%s))").format(sql.Identifier(function))
        row = self._claiming.execute(query, (CLAIM_ID, work)).fetchone()
        return bool(row and row[0])

    def close(self) -> None:
        """Close all connections. May be called twice."""
        self._pool.close()
        for connection in (self._listening, self._claiming):
            if connection is not None:
                connection.close()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.errors.UniqueViolation as error:
            raise ConflictError("an id is stored already", value=_line(error), remedy="use a new id") from None
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedTable) as error:
            raise UnfitError(
                f"the database cannot be used ({_line(error)})",
                remedy="give the role of the address its own database, or CREATE on a schema of its search path",
            ) from None
        except _AWAY as error:
            raise UnavailableError(
                f"the database is away ({_line(error)})",
                remedy="retry; the operator: does PostgreSQL run and take this role?",
                retry_after_s=RETRY_S,
            ) from None
        except psycopg.Error as error:
            _log.exception("the store cannot be used")
            raise UnfitError(f"the store cannot be used ({_line(error)})", remedy="the operator: see the log") from None


class _Translating:
    """A connection that takes the statements of the tables, with `?` and `:name` for parameters."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Parameters = ()) -> psycopg.Cursor[Any]:
        """Run a statement."""
        return self._connection.execute(_translated(statement), parameters)

    def executemany(self, statement: str, rows: Iterable[Any]) -> psycopg.Cursor[Any]:
        """Run a statement once for each row of parameters."""
        cursor = self._connection.cursor()
        cursor.executemany(_translated(statement), rows)
        return cursor


@lru_cache(maxsize=1_000)
def _translated(statement: str) -> str:
    """Return a statement with the placeholders of psycopg."""
    return _NAMED.sub(r"%(\1)s", statement.replace("%", "%%").replace("?", "%s"))


def _connection_parameters(address: str) -> dict[str, Any]:
    """Return the parameters of connections to an address of libpq, with the password that the file of its parameter
    `password_file` holds.

    libpq's own `passfile` is refused where a group may read it, as files are that systemd and Kubernetes mount. The
    address itself holds no secret: processes of workers show it, and so does the log.
    """
    base, _, query = address.partition("?")
    fields = query.split("&") if query else []
    files = [each.partition("=")[2] for each in fields if each.startswith("password_file=")]
    others = [each for each in fields if not each.startswith("password_file=")]
    given = conninfo_to_dict(base + ("?" + "&".join(others) if others else ""))
    defaults = {"application_name": "interfere", "connect_timeout": int(CONNECT_S), **_DEAD_PEERS}
    parameters = {**defaults, **given, "autocommit": True}
    if not files:
        return parameters
    try:
        parameters["password"] = Path(unquote(files[-1])).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UnfitError(
            f"the password file of the database cannot be read ({getattr(error, 'strerror', None) or 'not text'})",
            value=unquote(files[-1]),
            remedy="make it readable to the user of the server; it holds the password alone",
        ) from None
    return parameters


def _lock(connection: psycopg.Connection[Any], name: str) -> None:
    """Wait until no other transaction holds the lock of this name, and hold it until this one ends."""
    connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (LOCK_ID, name))


def _line(error: Exception) -> str:
    """Return the first line of an error of PostgreSQL, which never names a password."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
