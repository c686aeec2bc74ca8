"""The sharing mode of docs/architecture.md, added to a copy of the package as one member and one wire value."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.architecture_page import ROOT, example, proto_example

CHECKS = """
from pathlib import Path
from interfere.data.tables import Table, read_table, write_table
from interfere.devices import possible_modes
from interfere.features.pair import FeatureEncoder
from interfere.profiling.affinity import choose_layout
from interfere.errors import InvalidInputError
from interfere.records import Device, JobProfile, Limits, PairMeasurement, Snapshot
from interfere.sharing_modes import SharingMode
from interfere.records.documents import from_document
from interfere.v1 import policy_pb2 as pb
from interfere.wire.converter import from_proto, to_proto

mode = SharingMode.GREENCONTEXT
device = Device(id="d", type="a100", mode="greencontext")
assert device.mode is mode
snapshot = Snapshot(pending=(), devices=(device,), limits=Limits(choosable_modes=frozenset({"greencontext"})))
assert from_proto(Snapshot, to_proto(snapshot, pb.MatchRequest)) == snapshot
document = {"pending": [], "devices": [{"id": "d", "type": "a100", "mode": "greencontext"}]}
assert from_document(Snapshot, document).devices == (device,)
assert mode in possible_modes("a100") and mode not in possible_modes("cpu-core")
job = JobProfile(workload="a", device_type="a100", step_time_s=1.0, source="x")
assert FeatureEncoder().fingerprint == FINGERPRINT
assert FeatureEncoder().encode_jobs([job], "a100", mode).shape[0] == 1
pair = PairMeasurement(victim="a", neighbour="a", device_type="a100", mode=mode, slowdown=1.5, source="x", campaign="c")
write_table(Path("t"), Table(name="t", jobs=(job,), pairs=(pair,)))
assert read_table(Path("t")).pairs[0].mode is mode
try:
    choose_layout(mode, None)
except InvalidInputError as error:
    assert "timeslice, priority, spatial" in str(error)
else:
    raise AssertionError("CPU cores do not show this mode")
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with a copy of the package in which the mode of the page exists."""
    shutil.copytree(ROOT / "interfere", tmp_path / "interfere", ignore=shutil.ignore_patterns("__pycache__"))
    modes = tmp_path / "interfere" / "sharing_modes.py"
    text = modes.read_text(encoding="utf-8")
    last_member_ends = text.index("\n\n\nOptionalSharingMode")
    modes.write_text(text[:last_member_ends] + "\n" + example("mode") + text[last_member_ends:], encoding="utf-8")
    proto = tmp_path / "proto" / "interfere" / "v1" / "policy.proto"
    proto.parent.mkdir(parents=True)
    contract = (ROOT / "serving" / "proto" / "interfere" / "v1" / "policy.proto").read_text(encoding="utf-8")
    value = "  SHARING_MODE_SPATIAL = 6;\n"
    assert contract.count(value) == 1
    proto.write_text(contract.replace(value, value + proto_example("mode")), encoding="utf-8")
    paths = ["--proto_path=proto", "--python_out=.", "interfere/v1/policy.proto"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *paths], cwd=tmp_path, check=True, timeout=60)
    return tmp_path


def run(copy: Path, *arguments: str) -> str:
    """What a program prints that runs with the copy in place of the installed package."""
    environ = {"PYTHONPATH": str(copy), "PATH": "/usr/bin:/bin", "HOME": str(copy), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=copy, env=environ, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_mode_is_one_member_and_one_value_of_the_contract(copy: Path) -> None:
    installed = "from interfere.features.pair import FeatureEncoder; print(FeatureEncoder().fingerprint)"
    fingerprint = subprocess.run(
        [sys.executable, "-c", installed], capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout.strip()
    run(copy, "-c", f"FINGERPRINT = {fingerprint!r}\n{CHECKS}")
    assert "greencontext" in run(copy, "-m", "interfere", "predict", "--help")
