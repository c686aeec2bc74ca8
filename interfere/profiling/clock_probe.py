"""Measures how fast the clock of a core runs, by the CPU time of one fixed piece of work."""

import hashlib
import statistics
import time

# 800 × about 11 µs. Hashing a cached buffer follows the clock and nothing else: two readings 0.2 s apart differ
# by 0.6 % (median) and 3.2 % (p90) on an idle virtual machine, 0.9 % and 1.9 % on a busy one; a Python loop by 5-60 %.
REPEATS, BUFFER = 800, bytes(20_000)


def probe_s() -> float:
    """Median CPU seconds of hashing the buffer once, over the later half of the repeats."""
    durations_s = []
    for _ in range(REPEATS):
        start_s = time.process_time()
        hashlib.sha256(BUFFER).digest()
        durations_s.append(time.process_time() - start_s)
    return statistics.median(durations_s[REPEATS // 2 :])  # the earlier half wakes the core up
