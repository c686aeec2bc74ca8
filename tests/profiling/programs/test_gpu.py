"""GPU facts by nvidia-smi: against a program that prints NVIDIA's documented CSV, since there is no GPU here.

The commands that are measured, the processes and the sampling are real; the figures of the GPU are not.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from interfere.errors import ConflictError, InvalidInputError, NotFoundError, UnfitError
from interfere.profiling.nvidia_smi import find_gpu, gpu_processes, list_gpus, sample_gpu, with_gpu_facts
from interfere.profiling.programs.spec import Command, pinned_to_gpu
from interfere.records import JobProfile
from tests.profiling.programs.sample_programs import PRINTING

A100 = "0, GPU-aa, NVIDIA A100-SXM4-40GB, 550.54.15, 1410, Disabled"
SMI = """#!{python}
import sys, time
from pathlib import Path
query = sys.argv[1]
if "utilization" in query:
    memory = 1000
    while True:
        print(f"87, 41, {{memory}}, 231.50", flush=True)
        memory += 512
        if not any(word.startswith("--loop-ms") for word in sys.argv):
            break
        time.sleep(0.05)
elif "compute-apps" in query:
    print("4242, python, 3000")
else:
    print({gpus!r})
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with an nvidia-smi of one A100."""
    write_smi(tmp_path / "bin", A100)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "bin"


def write_smi(folder: Path, gpus: str, text: str = SMI) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "nvidia-smi").write_text(text.format(python=sys.executable, gpus=gpus))
    (folder / "nvidia-smi").chmod(0o755)


def test_a_gpu_is_found_by_its_type_with_its_provenance(smi: Path) -> None:
    gpu = find_gpu("a100")
    assert (gpu.index, gpu.uuid) == (0, "GPU-aa")
    assert gpu.provenance == "NVIDIA A100-SXM4-40GB, driver 550.54.15, SM clock up to 1410 MHz"
    assert [(p.pid, p.name, p.memory_bytes) for p in gpu_processes(gpu.uuid)] == [(4242, "python", 3000 * 2.0**20)]
    sample = sample_gpu(gpu.uuid)
    assert (sample.gpu_util_frac, sample.power_w) == (0.87, 231.5)


def test_a_gpu_that_is_not_there_is_refused(smi: Path) -> None:
    with pytest.raises(NotFoundError, match="no such GPU in this machine") as error:
        find_gpu("h100")
    assert "0: a100" in error.value.remedy
    write_smi(smi, A100 + "\n" + A100.replace("0, GPU-aa", "1, GPU-bb"))
    with pytest.raises(ConflictError, match="several GPUs"):
        find_gpu("a100")
    assert find_gpu("a100", 1).uuid == "GPU-bb"
    write_smi(smi, "0, GPU-cc, Tesla K80, [N/A], [Not Supported], [N/A]")
    (old,) = list_gpus()
    assert math.isnan(old.max_sm_clock_mhz)
    write_smi(smi, A100.replace("Disabled", "Enabled"))
    with pytest.raises(UnfitError, match="divided by MIG") as divided:
        find_gpu("a100")
    assert "a100-80gb-1g.10gb" in divided.value.remedy
    write_smi(smi, "", "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch' >&2; exit 18\n")
    with pytest.raises(UnfitError, match="nvidia-smi failed") as failed:
        list_gpus()
    assert "version mismatch" in failed.value.value


def profile_command(cwd: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    step = (
        "--step-regex",
        r"step (\d+)",
        "--warm-steps",
        "5",
        "--warm-s",
        "0.1",
        "--window-s",
        "0.5",
        "--repeats",
        "1",
    )
    words = ("profile", "command", "--workload", "train")
    command = [sys.executable, "-m", "interfere", *words, *step, *options, "--json"]
    return subprocess.run(
        [*command, "--", sys.executable, "train.py"],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_command_line_refuses_a_gpu_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PRINTING)
    done = profile_command(tmp_path, "--device-type", "a100", PATH=str(tmp_path))
    assert done.returncode == 1
    assert "this machine has no NVIDIA driver" in done.stdout + done.stderr
    assert not (tmp_path / "interfere-work").exists()


def test_a_command_on_a_gpu_is_pinned_and_sampled(tmp_path: Path, smi: Path) -> None:
    seen = "import os; open('seen', 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])\n"
    (tmp_path / "train.py").write_text(seen + PRINTING)
    done = profile_command(tmp_path, "--device-type", "a100", "--work", "w")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "seen").read_text() == "GPU-aa"
    assert "never run by the authors" in done.stderr
    assert "process 4242 (python) uses this GPU too" in done.stderr
    (job,) = json.loads(done.stdout)["jobs"]
    assert job["memory_peak_bytes"] >= 512 * 2**20, "what the device uses above what it used before"
    card = (tmp_path / "w" / "tables" / "commands" / "card.md").read_text()
    assert "never run on a GPU by the authors" in card


def test_without_samples_nothing_is_added_and_unknown_values_stay_unknown(smi: Path) -> None:
    profile = JobProfile(workload="w", device_type="a100", step_time_s=0.1)
    assert with_gpu_facts(profile, [], 0.0) is profile
    sampled = with_gpu_facts(profile, [sample_gpu("GPU-aa")], math.nan)
    assert math.isnan(sampled.memory_peak_bytes)
    assert (sampled.gpu_util_frac, sampled.memory_util_frac, sampled.power_w) == (0.87, 0.41, 231.5)


def test_a_command_that_chooses_another_gpu_is_refused() -> None:
    command = Command(name="a", argv=("x",), env=(("CUDA_VISIBLE_DEVICES", "3"), ("A", "b")))
    with pytest.raises(InvalidInputError, match="chooses its own GPU"):
        pinned_to_gpu(command, "GPU-aa")
    assert dict(pinned_to_gpu(Command(name="a", argv=("x",)), "GPU-aa").env) == {"CUDA_VISIBLE_DEVICES": "GPU-aa"}
