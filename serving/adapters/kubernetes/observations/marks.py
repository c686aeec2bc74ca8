"""Marks of steps that sidecars send. A pod can speak for itself alone: the sender's address must be the pod's.

Law: whatever one pod sends costs no other pod its marks, and no more memory than `MAX_MARKS` records.
"""

import threading
from collections.abc import Sequence

from interfere.errors import InvalidInputError
from interfere.progress import Mark, read_marks
from interfere.serving.adapters.kubernetes.observations.stays import LOOKBACK_S, Stay

MAX_MARKS = 2000  # of one pod: a quarter of an hour of one a second, and more writers
MAX_PODS = 20_000
MAX_BODY = 2**20


class MarkStore:
    """Marks by the address of the pod that sent them."""

    def __init__(self) -> None:
        self._marks: dict[str, list[Mark]] = {}
        self._lock = threading.Lock()

    def receive(self, address: str, content: bytes, now_s: float) -> int:
        """Take in lines of a spool; how many were records. Raises InvalidInputError where there are too many pods."""
        marks = read_marks(content).marks
        with self._lock:
            known = self._marks.get(address, [])
            if not known and len(self._marks) >= MAX_PODS:
                self._forget(now_s)
            if not known and len(self._marks) >= MAX_PODS:
                raise InvalidInputError("too many pods send marks", value=len(self._marks), remedy="more replicas")
            recent = [mark for mark in (*known, *marks) if now_s - LOOKBACK_S < mark.unix_s < now_s + LOOKBACK_S]
            self._marks[address] = recent[-MAX_MARKS:]
        return len(marks)

    def marks(self, stay: Stay, now_s: float) -> Sequence[Mark]:
        """The marks of a stay: an address may have been another pod's before."""
        with self._lock:
            known = [mark for address in stay.pod.ips for mark in self._marks.get(address, ())]
        return [mark for mark in known if stay.start_s <= mark.unix_s <= min(stay.end_s, now_s + LOOKBACK_S)]

    def complete_until_s(self, now_s: float) -> float:
        """Marks come by themselves: what is there is all there is."""
        return now_s

    def _forget(self, now_s: float) -> None:
        self._marks = {
            address: marks for address, marks in self._marks.items() if marks and marks[-1].unix_s > now_s - LOOKBACK_S
        }
