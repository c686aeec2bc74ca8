"""A program that holds memory: hog.py STEADY_MIB LEAK_MIB_PER_S FILE [ignore].

It writes "TIME MIB" into FILE ten times a second, marks a step each time, and leaks up to 160 MiB. With `ignore` it
ignores SIGTERM, and holds its memory in a child that left its session.
"""

import os
import signal
import sys
import time
from pathlib import Path

from interfere import progress

MIB, MOST_MIB, PERIOD_S = 2**20, 160, 0.1


def main() -> None:
    steady, leak, file = float(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
    if "ignore" in sys.argv[4:]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork():
            while True:
                time.sleep(60)
        os.setsid()
    held = [bytearray(os.urandom(MIB) * int(steady))]
    total = steady
    while True:
        with file.open("a") as out:
            out.write(f"{time.time()} {total}\n")
        progress.step()
        time.sleep(PERIOD_S)
        if leak and total < MOST_MIB:
            held.append(bytearray(os.urandom(1 << 10) * int((leak * PERIOD_S) * 1024)))
            total += leak * PERIOD_S


if __name__ == "__main__":
    main()
