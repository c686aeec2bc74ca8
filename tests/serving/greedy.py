"""A client with many calls in flight, in a process of its own: `python -m tests.serving.greedy ADDRESS KIND`."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc

from interfere.v1 import policy_pb2 as pb

IN_FLIGHT = 180
CONNECTIONS = 2
SERVICE = "/interfere.v1.PolicyService"
METHODS = {
    "matrices": f"{SERVICE}/PredictMatrix",
    "pairs": f"{SERVICE}/PredictSlowdowns",
    "unknown_callers": f"{SERVICE}/PredictSlowdowns",  # whom the server refuses
    "health": "/grpc.health.v1.Health/Check",
}


def request(kind: str, workloads: Sequence[str]) -> bytes:
    """Return the bytes of a request: a matrix of 100 jobs, one pair, or nothing."""
    if kind == "matrices":
        refs = [pb.JobRef(workload=workloads[k % len(workloads)]) for k in range(100)]
        return pb.PredictMatrixRequest(victims=refs).SerializeToString()
    if kind == "health":
        return b""
    refs = [pb.JobRef(workload=workload) for workload in workloads[:2]]
    return pb.PredictSlowdownsRequest(jobs=refs, pairs=[pb.OrderedPair(victim=0, neighbour=1)]).SerializeToString()


@contextmanager
def greedy(
    address: str, kind: str, workloads: Sequence[str], token: str = "", in_flight: int = IN_FLIGHT
) -> Iterator[Callable[[], int]]:
    """Keep calls in flight until the end of the block. Yields a function that returns how many were answered."""
    arguments = [address, METHODS[kind], str(in_flight), request(kind, workloads).hex(), token]
    command = [sys.executable, "-m", "tests.serving.greedy", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        question, answer = process.stdin, process.stdout

        def answered() -> int:
            print(file=question, flush=True)
            return int(answer.readline())

        try:
            yield answered
        finally:
            process.kill()


def main() -> None:
    """Send each call again when it has ended. Prints how many have ended for each line that is read."""
    address, method, in_flight, content, token = sys.argv[1:]
    metadata = [("authorization", f"Bearer {token}")] if token else None
    options = [("grpc.use_local_subchannel_pool", 1)]  # else all channels share one connection
    calls = [grpc.insecure_channel(address, options).unary_unary(method) for _ in range(CONNECTIONS)]

    answered = [0] * CONNECTIONS

    def send(k: int) -> None:
        def ended(_: Any) -> None:
            answered[k % CONNECTIONS] += 1
            send(k)

        calls[k % CONNECTIONS].future(bytes.fromhex(content), metadata=metadata).add_done_callback(ended)

    for k in range(int(in_flight)):
        send(k)
    for _ in sys.stdin:
        print(sum(answered), flush=True)


if __name__ == "__main__":
    main()
