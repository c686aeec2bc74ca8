"""Waiting for what a test needs, however slow the machine is, and ports that nothing else takes meanwhile.

A limit of time in a test only ends the wait for what never comes: a test that passes does not last longer by it.
"""

import itertools
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

# A processor three times slower, shared with other programs, and stopped for seconds now and then: what takes a second
# on an idle machine came within 40.
PATIENCE_S = 120.0
_FIRST_PORT, _PORTS_PER_WORKER = 10_000, 1_000
_offsets = itertools.count()


def wait_until(condition: Callable[[], object], what: str = "", *, within_s: float = PATIENCE_S) -> None:
    """Return as soon as a condition holds; fail where it does not hold within `within_s`."""
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s, f"not within {within_s:g} s: {what or condition}"
        time.sleep(0.02)


def free_port() -> int:
    """Return a port of the loopback for a server that has to be told its port.

    Ports that the system chooses by itself, for connections and for servers with port 0, are left out: one of them
    could take a port between its choice here and the start of the server. Processes of one test run draw from ranges
    of their own.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    first = _FIRST_PORT + int(worker) % 10 * _PORTS_PER_WORKER
    for _ in range(_PORTS_PER_WORKER):
        port = first + (os.getpid() + next(_offsets)) % _PORTS_PER_WORKER
        if port < _first_ephemeral_port() and _is_free(port):
            return port
    with socket.create_server(("127.0.0.1", 0)) as probe:  # every port is one that the system may choose
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    """Whether nobody listens there, nor did a moment ago."""
    try:
        with socket.create_server(("127.0.0.1", port), reuse_port=False):
            return True
    except OSError:
        return False


def _first_ephemeral_port() -> int:
    """The first of the ports that the system chooses by itself."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return 49_152  # RFC 6335, section 6
