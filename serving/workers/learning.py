"""Lets another process learn the log with a new model, so that calls go on undisturbed; the server reads the result."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from interfere.serving.metrics import Metrics
from interfere.serving.service import PolicyCore
from interfere.serving.state import load_served_model
from interfere.serving.workers.process import NICENESS
from interfere.store.sqlite import SqliteStore

TIMEOUT_S = 3_600.0  # of learning a log of tens of millions of entries


def learn_in_process(store_path: Path, model_folder: Path) -> None:
    """Learn the log, and store the state under the model's version. Where that fails, the server learns by itself."""
    command = [sys.executable, "-P", "-m", "interfere.serving.workers.learning", str(store_path), str(model_folder)]
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False, timeout=TIMEOUT_S)


def main() -> None:
    """Learn the log, and store the result."""
    os.nice(NICENESS)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    store = SqliteStore(Path(sys.argv[1]), shared=True)
    PolicyCore(
        model=load_served_model(Path(sys.argv[2])), store=store, metrics=Metrics(), time_budget_s=1.0
    ).store_state()
    store.close()


if __name__ == "__main__":
    main()
