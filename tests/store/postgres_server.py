"""A PostgreSQL server of a test: Debian's programs, a socket in a folder of its own, no port."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

OWNER = "postgres"  # PostgreSQL refuses to run as root


def programs() -> Path | None:
    """Return the folder of the newest installed server programs; None without any."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


class PostgresServer:
    """A server that runs, with one empty database for each `new_database`."""

    def __init__(self, folder: Path, binaries: Path, *, fsync: bool) -> None:
        self._folder, self._binaries, self._fsync, self._databases = folder, binaries, fsync, 0

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs as the owner of the data."""
        command = [str(self._binaries / program), *arguments]
        if os.geteuid() == 0:
            command = ["runuser", "-u", OWNER, "--", *command]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self._folder, check=False)
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

    def start(self) -> None:
        """Start, and return when connections are taken."""
        options = f"-k {self._folder} -c listen_addresses='' -c max_connections=60"
        options += "" if self._fsync else " -c fsync=off"
        log = str(self._folder / "log")
        self.run("pg_ctl", "-D", str(self._folder / "data"), "-l", log, "-o", options, "-w", "-t", "120", "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop; `immediate` is a crash."""
        self.run("pg_ctl", "-D", str(self._folder / "data"), "-m", mode, "-w", "-t", "120", "stop")

    def new_database(self) -> str:
        """Return the address of a new, empty database."""
        self._databases += 1
        name = f"test{os.getpid()}_{self._databases}"
        self.run("createdb", "-h", str(self._folder), "-U", OWNER, name)
        return f"postgresql:///{name}?host={self._folder}&user={OWNER}"

    def new_guarded_database(self, role: str, password: str) -> str:
        """Return the address of a new, empty database whose owner has to show a password."""
        rules = self._folder / "data" / "pg_hba.conf"
        rules.write_text(f"local all {role} scram-sha-256\n{rules.read_text()}")
        at = ("-h", str(self._folder), "-U", OWNER)
        self.run("psql", *at, "-c", f"CREATE ROLE {role} LOGIN PASSWORD '{password}'", "-c", "SELECT pg_reload_conf()")
        self._databases += 1
        name = f"guarded{os.getpid()}_{self._databases}"
        self.run("createdb", *at, "--owner", role, name)
        return f"postgresql:///{name}?host={self._folder}&user={role}"


@contextmanager
def running_postgres(*, fsync: bool = False) -> Iterator[PostgresServer]:
    """Give a server. Without its programs the test is skipped; where REQUIRE_ALL is set (CI) that is a failure.

    `fsync`: wait for the disk, as a site's database does. A crash of its processes loses nothing without it, and its
    recovery takes a second in place of ten on a busy disk.
    """
    binaries = programs()
    if binaries is None:
        if "REQUIRE_ALL" in os.environ:
            pytest.fail("PostgreSQL is not installed: apt-get install postgresql")
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # a short path: sockets have at most 107 characters
    server = PostgresServer(folder, binaries, fsync=fsync)
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, OWNER)
        folder.chmod(0o755)
        server.run(
            "initdb", "-D", str(folder / "data"), "--no-sync", "-A", "trust", "-U", OWNER, "-E", "UTF8", "--locale=C"
        )
        server.start()
        yield server
        server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
