"""Slurm commands that stand before the real ones in PATH, so that something happens at an exact point of a round."""

import os
import shutil
from pathlib import Path


def shim(folder: Path, command: str, script: str) -> Path:
    """A shell script in place of `command`; $REAL is the real one, $ADVISOR the process that called."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / command
    path.write_text(f'#!/bin/sh\nREAL="{shutil.which(command)}"\nADVISOR=$PPID\n{script}\n')
    path.chmod(0o755)
    return folder


KILL_POINTS = {
    "after reading jobs": ("squeue", '"$REAL" "$@" >/dev/null; kill -9 $ADVISOR'),
    "after reading nodes": ("sinfo", '"$REAL" "$@" >/dev/null; kill -9 $ADVISOR'),
    "before the first update": ("scontrol", "kill -9 $ADVISOR"),
    "between the two updates of a job": (
        "scontrol",
        'read -r line; echo "$line" | "$REAL" "$@"; kill -9 $ADVISOR; sleep 0.3; exec "$REAL" "$@"',
    ),
    "after all updates": ("scontrol", '"$REAL" "$@"; kill -9 $ADVISOR'),
}
# The host of the advisor loses power between the two updates of a job: nothing outlives it.
POWER_LOSS = ("scontrol", 'read -r line; echo "$line" | "$REAL" "$@"; kill -9 $ADVISOR')


def between_read_and_update(folder: Path, happening: str) -> Path:
    """`squeue` answers with what was true before `happening`, once."""
    flag = folder / "happened"
    return shim(
        folder,
        "squeue",
        f'"$REAL" "$@" > {folder}/answer; [ -e {flag} ] || {{ touch {flag}; {happening}; }}; cat {folder}/answer',
    )


def fake(folder: Path, jobs: str, nodes: str) -> Path:
    """A whole Slurm of files: `squeue` and `sinfo` answer with them; what `scontrol` and `scancel` are told is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "jobs.json").write_text(jobs)
    (folder / "nodes.json").write_text(nodes)
    for command, script in (
        ("squeue", f"cat {folder}/jobs.json"),
        ("sinfo", f"cat {folder}/nodes.json"),
        ("scontrol", f"cat >> {folder}/told"),
        ("scancel", f'echo "scancel $*" >> {folder}/told'),
    ):
        path = folder / command
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    (folder / "told").touch()
    return folder


def told(folder: Path) -> list[str]:
    """What `scontrol` was told, and forget it."""
    lines = (folder / "told").read_text().splitlines()
    os.truncate(folder / "told", 0)
    return lines
