"""The queues in which calls wait for their turn, one for each kind of work, so that one kind cannot hold up another."""

from interfere.config import Settings
from interfere.serving.calls.callers import MAX_CALLS
from interfere.serving.calls.fair_queue import FairQueue
from interfere.serving.calls.transfers import Transfers

WRITES_AT_ONCE = 2  # one writes, one parses the next request
SHORT_AT_ONCE = 4  # of several callers; of one there is one at a time
_WRITES = frozenset({"ReportObservations", "RegisterProfiles", "RemoveProfiles"})
# Calls that may compute for long; the others answer in milliseconds.
_DECISIONS = frozenset({"Match", "RankPlacements", "Explain", "GetObservationLog", "LoadModel", "RollbackModel"})


class CallQueues:
    """The queues of the server: each kind of method has one."""

    def __init__(self, settings: Settings, transfers: Transfers) -> None:
        most, may_begin = settings.max_concurrent_rpcs, transfers.may_answer
        self._reads = FairQueue(settings.threads, reserved=1, most_of_caller=most, may_begin=may_begin)
        self._writes = FairQueue(WRITES_AT_ONCE, reserved=1, most_of_caller=most, may_begin=may_begin)
        # Decisions wait for their turn in `interfere.serving.calls.turns`; here the calls of a caller are bounded.
        self._decisions = FairQueue(MAX_CALLS, most_of_caller=most, may_begin=may_begin)
        # Health checks and refusals take so little that 180 of them in flight keep the thread busy that takes all calls
        # from the network: a polite caller waited 53 times as long beside calls without a token, and 8 times as long
        # beside health checks.
        self.short = FairQueue(SHORT_AT_ONCE, reserved=SHORT_AT_ONCE - 1, always_rests=True)
        for queue in (self._reads, self._writes, self._decisions):
            transfers.on_sent(queue.look_again)

    def of_method(self, name: str) -> FairQueue:
        """Return the queue of a unary method of the policy service."""
        if name in _WRITES:
            return self._writes
        return self._decisions if name in _DECISIONS else self._reads
