"""Slurm's accounting on one machine: MariaDB and slurmdbd in a temporary folder, own ports."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.serving.adapters.slurm.cluster import stop_by_pid_file
from tests.waiting import PATIENCE_S, free_port

PROGRAMS = ("slurmdbd", "sacct", "mariadbd", "mariadb-install-db", "mariadb-admin")
PACKAGES = "slurmdbd mariadb-server"


@dataclass(kw_only=True)
class Accounting:
    """A database server and Slurm's database daemon; `slurm_options` are what slurm.conf needs to write to them."""

    folder: Path
    database: "subprocess.Popen[Any] | None" = None
    ports: list[int] = field(default_factory=lambda: [free_port()])

    @property
    def slurm_options(self) -> tuple[str, ...]:
        return (
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={self.ports[0]}",
            "AccountingStorageTRES=gres/gpu,gres/shard",
            "JobAcctGatherType=jobacct_gather/none",
        )

    def start(self) -> "Accounting":
        """Create the database, start both daemons, wait until slurmdbd answers."""
        data = self.folder / "mariadb"
        data.mkdir(parents=True)
        shutil.chown(self.folder, "mysql")
        shutil.chown(data, "mysql")
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=mysql", "--skip-test-db"],
            check=True,
            capture_output=True,
        )
        self.database = subprocess.Popen(
            [
                "mariadbd",
                "--no-defaults",
                f"--datadir={data}",
                "--user=mysql",
                f"--socket={self._socket}",
                "--skip-networking",
                "--innodb-buffer-pool-size=64M",
                "--innodb-lock-wait-timeout=900",
            ],
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "mariadb.log").open("a"),
        )
        self._wait(self._database_answers)
        self._configure()
        subprocess.run(["slurmdbd"], env=self._env, check=True, capture_output=True)
        self._wait(self._listens)
        return self

    def stop(self) -> None:
        stop_by_pid_file(self.folder / "slurmdbd.pid")
        if self.database is not None:
            self.database.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.database.wait(20)
            self.database.kill()
            self.database.wait()

    @property
    def _socket(self) -> Path:
        return self.folder / "mariadb.sock"

    @property
    def _env(self) -> dict[str, str]:
        return os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf"), "MYSQL_UNIX_PORT": str(self._socket)}

    def _configure(self) -> None:
        """slurmdbd.conf, readable by its owner alone, as slurmdbd demands; it lies beside slurm.conf."""
        path = self.folder / "slurmdbd.conf"
        options = (
            "AuthType=auth/none",
            "DbdHost=localhost",
            "DbdAddr=127.0.0.1",
            f"DbdPort={self.ports[0]}",
            "SlurmUser=root",
            f"PidFile={self.folder}/slurmdbd.pid",
            f"LogFile={self.folder}/slurmdbd.log",
            "StorageType=accounting_storage/mysql",
            "StorageHost=localhost",
            "StorageUser=root",
            "StorageLoc=slurm_acct_db",
        )
        path.write_text("\n".join(options) + "\n")
        path.chmod(0o600)

    def _database_answers(self) -> bool:
        command = ["mariadb-admin", f"--socket={self._socket}", "ping"]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def _listens(self) -> bool:
        """slurmctld ends at once where slurmdbd does not answer yet."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.ports[0]), 1):
            return True
        return False

    def _wait(self, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not ready():
            logs = [path.read_text(errors="replace")[-2000:] for path in sorted(self.folder.glob("*.log"))]
            assert time.monotonic() < end, "\n".join(["not in time:", *logs])
            time.sleep(0.1)
