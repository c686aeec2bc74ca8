"""200,000 random well-formed requests to one server: no internal error, no crash, and no growth of its memory."""

import os
from pathlib import Path

import grpc

from interfere.client import PolicyClient
from interfere.v1 import policy_pb2_grpc as rpc
from tests.serving.fuzzing import Fuzzer
from tests.serving.test_fuzz import run
from tests.soak.processes import serving_with

LONG = "SOAK_ROUNDS" in os.environ  # make soak
COUNT = int(os.environ.get("FUZZ_REQUESTS", "200000" if LONG else "1000"))
PARTS = 10
MAX_GROWTH = 0.05  # of resident memory, after a fifth of the requests


def resident_mib(pid: int) -> float:
    """Of the server and of its workers."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    pids = [str(pid), *(child for each in children for child in each.read_text().split())]
    pages = sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_random_requests(model_folder: Path, tmp_path: Path) -> None:
    fuzzer, total, resident = Fuzzer(int(os.environ.get("FUZZ_SEED", "7"))), dict[str, int](), list[float]()
    with serving_with(tmp_path, model=model_folder, slow_call_s=60) as served:
        with grpc.insecure_channel(served.address, options=[("grpc.max_send_message_length", -1)]) as channel:
            stub = rpc.PolicyServiceStub(channel)
            for part in range(PARTS):
                for status, count in run(stub, fuzzer, COUNT // PARTS).items():
                    total[status] = total.get(status, 0) + count
                resident.append(resident_mib(served.process.pid))
                print(f"{(part + 1) * COUNT // PARTS} requests, {resident[-1]:.0f} MiB, {total}", flush=True)
        with PolicyClient(served.address) as client:
            assert client.predict(["gemm", "infer"]).prediction.median.size == 2
        assert served.process.poll() is None
    assert "Traceback" not in (tmp_path / "server.log").read_text()
    if LONG:
        assert resident[-1] <= (1 + MAX_GROWTH) * resident[1]
