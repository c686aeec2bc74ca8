"""Well-formed requests with extreme values: never an internal error, and the server goes on as before."""

import os
from typing import Any

import grpc

from interfere.client import PolicyClient
from interfere.serving.server import RunningServer
from tests.serving.fuzzing import Fuzzer
from tests.waiting import PATIENCE_S

COUNT = int(os.environ.get("FUZZ_REQUESTS", "2000"))
FAULTS = {
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
}


def run(stub: Any, fuzzer: Fuzzer, count: int) -> dict[str, int]:
    """Send so many requests; how many got each status. Fails with the request that found a fault."""
    statuses: dict[str, int] = {}
    for number, (method, request) in enumerate(fuzzer.requests(count)):
        code = "OK"
        try:
            answer = getattr(stub, method)(request, timeout=PATIENCE_S)
            if method == "Match" and answer.decision_id:
                fuzzer.decision_ids = [*fuzzer.decision_ids[-9:], answer.decision_id]
        except grpc.RpcError as error:
            failed: Any = error
            code = failed.code().name
            if failed.code() in FAULTS:
                raise AssertionError(f"request {number}: {method} {failed.details()}\n{str(request)[:6000]}") from None
        statuses[code] = statuses.get(code, 0) + 1
    return statuses


def test_no_well_formed_request_is_an_internal_error(server: RunningServer, stub: Any) -> None:
    statuses = run(stub, Fuzzer(int(os.environ.get("FUZZ_SEED", "0"))), COUNT)
    print(statuses)
    assert statuses["OK"] > COUNT / 10  # the requests are not all refused at the door
    with PolicyClient(server.address) as client:
        assert client.predict(["gemm", "infer"]).prediction.median.size == 2
