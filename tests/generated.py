"""`python -m tests.generated`: is the generated protobuf code what the proto file gives? Part of make check."""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROTO = "interfere/v1/policy.proto"
FILES = ("policy_pb2.py", "policy_pb2.pyi", "policy_pb2_grpc.py")


def stale_files() -> list[str]:
    """Generated files that differ from a fresh generation."""
    with tempfile.TemporaryDirectory() as fresh:
        targets = [f"--{kind}_out={fresh}" for kind in ("python", "pyi", "grpc_python")]
        source = [f"--proto_path={ROOT / 'serving' / 'proto'}", str(ROOT / "serving" / "proto" / PROTO)]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *targets, *source], check=True)
        made, kept = Path(fresh) / "interfere" / "v1", ROOT / "interfere" / "v1"
        return [name for name in FILES if (made / name).read_bytes() != (kept / name).read_bytes()]


if __name__ == "__main__":
    if stale := stale_files():
        sys.exit(f"generated code is stale: {', '.join(stale)}; run make gen and commit it")
