"""Receives the request of a call before the call gets a thread, so that slow and silent senders hold no threads.

gRPC's server for Python gives every call a thread at once, and the call waits there for its request. A few stalled
clients can so take all threads. Here the server begins to receive the request, and hands the call to its executor once
the request has arrived, which also saves two changes of threads for each call. The arguments that gRPC hands to an
executor are an internal of gRPC: `SUPPORTED` states whether this release of grpcio hands over the expected ones.
Otherwise calls wait in threads.

Law 1: the server gives up a request that has not arrived after `LIMIT_S`. Of the requests that take longer than
`SLOW_S` it keeps the newest `MAX_SLOW`, and of all requests the newest `MAX_RECEIVING`. A waiting request holds no
memory besides the part that has arrived. Law 2: a call whose request is given up is answered with a status. A call
either runs or is given up, never both.
"""

import inspect
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from grpc import _server
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from interfere.errors import InterfereError, InvalidInputError, LimitError

_log = logging.getLogger(__name__)
LIMIT_S = 30.0  # 64 MiB at 18 Mbit/s
SLOW_S = 1.0  # nearly all requests arrive with their call
MAX_SLOW = 8  # of the largest size: half a gigabyte
MAX_RECEIVING = 1_000
CHECK_EVERY_S = 0.25

_PARAMETERS = ("rpc_event", "state", "behavior", "argument_thunk", "request_deserializer", "response_serializer")
SUPPORTED = all(
    tuple(inspect.signature(getattr(_server, name, lambda: None)).parameters) == _PARAMETERS
    for name in ("_unary_response_in_pool", "_stream_response_in_pool")
) and all(hasattr(_server, name) for name in ("_receive_message", "_RECEIVE_MESSAGE_TOKEN", "_is_rpc_state_active"))


class UnreadCall(NamedTuple):
    """A call with one request that gRPC hands to the executor before it has received the request."""

    run: Callable[..., None]  # in the context of the call
    respond: Callable[..., None]  # takes the other fields; it asks `receive` for the request
    event: Any
    state: Any
    behaviour: Any
    receive: Callable[[], Any]
    deserialize: Callable[[bytes], Any] | None
    serialize: Callable[[Any], bytes] | None

    def respond_with(self, behaviour: Callable[..., Any], request: Any) -> None:
        """Run a behaviour on this request, and send its answer to the caller."""
        self.run(self.respond, self.event, self.state, behaviour, lambda: request, self.deserialize, self.serialize)


def unread_call(task: Callable[..., Any], arguments: tuple[Any, ...]) -> UnreadCall | None:
    """Return the gRPC call that a task of an executor would answer; None where the task is something else."""
    if not SUPPORTED or len(arguments) != len(_PARAMETERS) + 1:
        return None
    return UnreadCall(task, *arguments)


class _Receipt:
    """One request that the server is still receiving."""

    __slots__ = ("call", "give_up", "since_s")

    def __init__(self, call: UnreadCall, give_up: Callable[[UnreadCall, InterfereError], None]) -> None:
        self.call, self.give_up, self.since_s = call, give_up, time.monotonic()


class Receiver:
    """Receives the requests of calls without holding a thread for any of them. Thread-safe."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping, self._mutex = stopping, threading.Lock()
        self._receipts: dict[int, _Receipt] = {}  # oldest first
        threading.Thread(target=self._give_up_slow_ones, name="receiving", daemon=True).start()

    def __len__(self) -> int:
        """Return the number of requests that are being received."""
        return len(self._receipts)

    def receive(
        self,
        call: UnreadCall,
        received: Callable[[UnreadCall, Any], None],
        give_up: Callable[[UnreadCall, InterfereError], None],
    ) -> None:
        """Begin to receive the request of a call; later call `received` with the request, or `give_up` with an error.

        This method and `received` run in the thread that takes calls from the network. If the caller ends the call
        first, neither of the two is called.
        """
        receipt = _Receipt(call, give_up)
        key = id(receipt)
        state, note = call.state, _server._receive_message(call.state, call.event.call, call.deserialize)

        def on_event(event: Any) -> Any:
            finished = note(event)  # sets state.request, or that the caller has ended the call
            with self._mutex:
                is_given_up = self._receipts.pop(key, None) is None
            if not is_given_up:
                try:
                    _go_on(receipt, received)
                except Exception:  # would end the thread that takes calls
                    _log.exception("a call whose request has arrived cannot be begun")
            return finished

        with state.condition:
            if not _server._is_rpc_state_active(state):
                return
            with self._mutex:
                self._receipts[key] = receipt
                excess = self._take_oldest(len(self._receipts) - MAX_RECEIVING)
            call.event.call.start_server_batch((cygrpc.ReceiveMessageOperation(0),), on_event)
            state.due.add(_server._RECEIVE_MESSAGE_TOKEN)
        for each in excess:
            each.give_up(each.call, _too_many(MAX_RECEIVING))

    def _take_oldest(self, count: int) -> list[_Receipt]:
        """Remove the oldest `count` receipts from the waiting ones and return them. The lock must be held."""
        keys = list(self._receipts)[:count] if count > 0 else []
        return [self._receipts.pop(key) for key in keys]

    def _give_up_slow_ones(self) -> None:
        while not self._stopping.wait(CHECK_EVERY_S):
            if not self._receipts:
                continue
            now_s = time.monotonic()
            with self._mutex:
                ages_s = [now_s - receipt.since_s for receipt in self._receipts.values()]
                overdue = self._take_oldest(sum(age_s > LIMIT_S for age_s in ages_s))
                slow = sum(age_s > SLOW_S for age_s in ages_s) - len(overdue)
                excess = self._take_oldest(slow - MAX_SLOW)
            for each in overdue:
                each.give_up(each.call, _too_late())
            for each in excess:
                each.give_up(each.call, _too_many(MAX_SLOW))


def _go_on(receipt: _Receipt, received: Callable[[UnreadCall, Any], None]) -> None:
    """Hand over the request that has arrived, or report that the caller ended the call without a request."""
    state = receipt.call.state
    with state.condition:
        request, state.request = state.request, None
        is_active = _server._is_rpc_state_active(state)
    if request is not None:
        received(receipt.call, request)
    elif is_active:
        receipt.give_up(receipt.call, InvalidInputError("the call carries no request", remedy="send one message"))


def _too_late() -> LimitError:
    return LimitError("the request took too long to arrive", value=f"{LIMIT_S:g} s", remedy="send it at once")


def _too_many(limit: int) -> LimitError:
    return LimitError(
        "too many requests arrive slowly", value=limit, remedy="send each at once; retry later", retry_after_s=SLOW_S
    )
