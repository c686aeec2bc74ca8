"""Settings of the memory allocator and the garbage collector of the server's processes.

By default glibc keeps one heap for each of many threads. After it has freed a large message or matrix once, it takes
later ones from these heaps too. The holes in the heaps added a fifth to the resident memory of a server within 16,000
calls.
"""

import ctypes
import gc
import os
from contextlib import suppress

# Parameters of mallopt(3), and their values here.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
LARGE_BYTES = 512 * 1024  # from this size on, memory is mapped by itself and returned at once when it is freed
ARENAS = 2  # heaps; Python's own small objects live in neither


def return_freed_memory() -> None:
    """Make the allocator return large freed blocks to the system, and let all threads share few heaps.

    Call this before threads start. Settings of the environment (MALLOC_ARENA_MAX, ...) take precedence. Without glibc
    it does nothing.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for name, parameter, value in (
            ("MALLOC_ARENA_MAX", _M_ARENA_MAX, ARENAS),
            ("MALLOC_MMAP_THRESHOLD_", _M_MMAP_THRESHOLD, LARGE_BYTES),
            ("MALLOC_TRIM_THRESHOLD_", _M_TRIM_THRESHOLD, LARGE_BYTES),
        ):
            if name not in os.environ:
                mallopt(parameter, value)


def leave_out_what_stays() -> None:
    """Exclude the objects that are loaded now from garbage collection (gc.freeze).

    The collector would traverse 60,000 objects again and again, 30 ms each time, while no thread runs. Call this once
    in a process, when everything is loaded.
    """
    gc.collect()
    gc.freeze()
