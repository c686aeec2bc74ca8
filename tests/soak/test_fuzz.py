"""200,000 random well-formed requests of four callers to a server: no internal error, no crash, no growth of memory."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import grpc

from interfere.client import PolicyClient
from interfere.v1 import policy_pb2_grpc as rpc
from tests.serving.fuzzing import Fuzzer
from tests.serving.test_fuzz import run
from tests.soak.processes import serving_with

LONG = "SOAK_ROUNDS" in os.environ  # make soak
COUNT = int(os.environ.get("FUZZ_REQUESTS", "200000" if LONG else "1000"))
PARTS, CALLERS = 10, 4
MAX_GROWTH = 0.05  # of resident memory, after a fifth of the requests


def resident_mib(pid: int) -> float:
    """Of the server and of its workers."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    pids = [str(pid), *(child for each in children for child in each.read_text().split())]
    pages = sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_random_requests(model_folder: Path, tmp_path: Path) -> None:
    seed, total, resident = int(os.environ.get("FUZZ_SEED", "7")), dict[str, int](), list[float]()
    fuzzers = [Fuzzer(seed + k, caller="" if k == 0 else f"-{k}-") for k in range(CALLERS)]
    with serving_with(tmp_path, model=model_folder, slow_call_s=60) as served:
        with grpc.insecure_channel(served.address, options=[("grpc.max_send_message_length", -1)]) as channel:
            stub = rpc.PolicyServiceStub(channel)
            for part in range(PARTS):
                with ThreadPoolExecutor(CALLERS) as callers:
                    share = partial(run, stub, count=COUNT // PARTS // CALLERS)
                    for statuses in callers.map(share, fuzzers):
                        total = {status: total.get(status, 0) + statuses.get(status, 0) for status in total | statuses}
                resident.append(resident_mib(served.process.pid))
                print(f"{(part + 1) * COUNT // PARTS} requests, {resident[-1]:.0f} MiB, {total}", flush=True)
        with PolicyClient(served.address) as client:
            assert client.predict(["gemm", "infer"]).prediction.median.size == 2
        assert served.process.poll() is None
    assert "Traceback" not in (tmp_path / "server.log").read_text()
    if LONG:
        assert resident[-1] <= (1 + MAX_GROWTH) * resident[1]
