"""The wheel puts one name into an environment, holds everything that runs, and harms no package of somebody else."""

import os
import subprocess
import sys
import tarfile
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

from tests.packaging.conftest import ROOT, pip
from tests.structure import source_files


def files_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def write_wheel(folder: Path, name: str, files: dict[str, str]) -> Path:
    """Write a wheel of somebody else: pure Python, with a record of its files as pip wants it."""
    info = f"{name}-1.0.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {
        path: urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode() for path, text in files.items()
    }
    record = "".join(f"{path},sha256={digests[path]},{len(text.encode())}\n" for path, text in files.items())
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return wheel


def test_one_name_is_installed(wheel: Path) -> None:
    assert {name.partition("/")[0] for name in files_of(wheel)} == {"interfere", "interfere_gpu-0.1.0.dist-info"}


def test_nothing_that_a_wheel_should_not_hold(wheel: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_wheel_contents", str(wheel)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_and_every_file_that_commands_read_is_in_the_wheel(wheel: Path) -> None:
    packed = files_of(wheel)
    modules = {path.relative_to(ROOT).as_posix() for path in source_files()}
    expected = {name if name.startswith("interfere/") else f"interfere/{name}" for name in modules}
    assert expected - packed == set()
    for file in (
        "interfere/_datasets/cpu/pairs.parquet",
        "interfere/predict/default/pair.onnx",
        "interfere/serving/adapters/slurm/files/job_submit.lua",
        "interfere/training/notices/gavel.md",
        "interfere/py.typed",
    ):
        assert file in packed


def test_the_source_archive_is_complete_and_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """Every tracked file but the links is in it, and its wheel holds the same files as that of the checkout."""
    build = "from hatchling.build import build_sdist; import sys; print(build_sdist(sys.argv[1]))"
    tool = tmp_path / "tool"
    pip(sys.executable, "install", "--quiet", "--target", str(tool), "hatchling")
    subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, check=True, env={**os.environ, "PYTHONPATH": str(tool)}
    )
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {member.name.partition("/")[2] for member in packed.getmembers()}
        packed.extractall(tmp_path / "source", filter="data")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = {name for name in listed.stdout.split("\0") if name and not (ROOT / name).is_symlink()}
    assert {name for name in tracked if (ROOT / name).exists()} - names == set()
    (source,) = (tmp_path / "source").iterdir()
    pip(sys.executable, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path / "again"), str(source))
    (again,) = (tmp_path / "again").glob("*.whl")
    assert files_of(again) == files_of(wheel)


def test_two_wheels_with_a_training_package_do_not_meet(wheel: Path, tmp_path: Path) -> None:
    """Whichever is installed last: theirs is theirs, ours runs, and removing ours leaves theirs."""
    files = {f"{package}/__init__.py": "OWNER = 'theirs'\n" for package in ("training", "serving", "features")}
    theirs = write_wheel(tmp_path, "theirs", {**files, "training/dataset.py": "OWNER = 'theirs'\n"})
    for k, order in enumerate([(theirs, wheel), (wheel, theirs)]):
        target = tmp_path / f"site-{k}"
        for one in order:
            pip(sys.executable, "install", "--quiet", "--no-deps", "--upgrade", "--target", str(target), str(one))
        code = (
            "import training.dataset, serving, features, interfere.training.dataset as ours, interfere.serving\n"
            "print(training.dataset.OWNER, serving.OWNER, features.OWNER, ours.__file__)"
        )
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(target)},
        )
        owner, *others, path = done.stdout.split()
        assert [owner, *others] == ["theirs"] * 3
        assert path == str(target / "interfere" / "training" / "dataset.py")
