"""`interfere run --priority` on programs that know nothing of sharing."""

import subprocess
import sys
from pathlib import Path

TRAINING = """
import sys
import torch
from interfere import progress

weights, inputs = torch.zeros(4, 4, requires_grad=True), torch.ones(4, 4)
for _ in progress.wrap(range(14)):
    (inputs @ weights).sum().backward()
(session,) = sys.modules["interfere.sharing.live"].joined
print(session.member.priority, session.is_measured, weights.grad[0, 0].item())
"""


def run(tmp_path: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "program.py"
    program.write_text(text)
    command = [sys.executable, "-m", "interfere", "run", "--jobs-folder", str(tmp_path / "jobs"), *options]
    return subprocess.run(
        [*command, "--", sys.executable, str(program)], capture_output=True, text=True, check=False, timeout=240
    )


def test_an_unchanged_training_takes_turns_and_is_measured(tmp_path: Path) -> None:
    done = run(tmp_path, TRAINING, "--priority", "high", "--device", "test-run")
    assert done.stdout.split() == ["1", "True", "56.0"], done.stderr
    assert "sitecustomize" not in done.stderr
    assert done.returncode == 0


def test_programs_without_pytorch_and_jobs_without_priority_are_left_alone(tmp_path: Path) -> None:
    done = run(tmp_path, "import sys; print('torch' in sys.modules, 'interfere' in sys.modules)", "--priority", "low")
    assert done.stdout.split() == ["False", "False"], done.stderr
    assert done.stderr == ""


def test_a_job_whose_device_cannot_be_joined_runs_all_the_same(tmp_path: Path) -> None:
    text = "import torch; print((torch.ones(2) + 1).sum().item())"
    done = run(tmp_path, text, "--priority", "high", "--device", "no/such/device")
    assert done.stdout.split() == ["4.0"]
    assert "does not share its device" in done.stderr


def test_an_unknown_priority_is_refused_before_anything_runs(tmp_path: Path) -> None:
    done = run(tmp_path, "print('ran')", "--priority", "urgent")
    assert (done.returncode, done.stdout) == (1, "")
    assert "high, low" in done.stderr
