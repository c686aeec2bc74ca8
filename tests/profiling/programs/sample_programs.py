"""Small programs to measure, and a search for the processes they leave behind."""

import sys
import time
from pathlib import Path

import psutil

from interfere.profiling.programs.run import RUN_FOLDER
from interfere.profiling.programs.spec import Command

# Steps of 3 ms of work, and of 1 ms of work with a wait of 4 ms.
BUSY = """
import time
from interfere import progress
while True:
    until = time.process_time() + 0.003
    while time.process_time() < until: pass
    progress.step()
"""
WAITING = """
import time
from interfere import progress
while True:
    until = time.process_time() + 0.001
    while time.process_time() < until: pass
    time.sleep(0.004)
    progress.step()
"""
PRINTING = """
import time
print("loading the data", flush=True)
for k in range(100_000):
    time.sleep(0.002)
    if k % 5 == 4: print(f"epoch 1 step {k + 1} loss 0.1")
"""


def program(code: str, name: str = "job", **changes: object) -> Command:
    """A command that runs this Python code; short warm-up."""
    values: dict[str, object] = {"name": name, "argv": (sys.executable, "-c", code), "warm_steps": 2, "warm_s": 0.1}
    return Command(**{**values, **changes})  # type: ignore[arg-type]


def leftovers(folder: Path, within_s: float = 60.0) -> list[str]:
    """Living processes of runs below a folder, after giving them a while to go; children that forked away included."""
    until = time.monotonic() + within_s
    while True:
        running = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(RUN_FOLDER, "").startswith(str(folder)):
                    running.append(f"{process.pid} {process.cmdline()}")
            except psutil.Error:  # it ended, or is a zombie that has no environment any more
                continue
        if not running or time.monotonic() > until:
            return running
        time.sleep(0.05)
