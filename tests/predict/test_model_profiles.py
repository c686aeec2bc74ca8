"""The profiles of a model folder are read back as they were written, in less space than a list of their facts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.data.loading import load_table
from interfere.errors import ModelError
from interfere.predict.manifest import PLAIN_FILE, PROFILES_FILE, profiles_content, shipped_profiles
from interfere.records import JobProfile, KernelStat
from interfere.records.documents import to_document


def test_profiles_are_read_back_bit_for_bit(tmp_path: Path) -> None:
    kernels = (
        KernelStat(name="gemm", mean_s=1 / 3, count=2, grid=(1, 2, 3)),
        KernelStat(name="relu", mean_s=1e-9, count=1),
    )
    bare = JobProfile(workload="bare", device_type="v100", step_time_s=float("nan"), source="static")
    profiles = (*load_table("cpu").profiles, bare, replace(bare, workload="kernels", kernels=kernels))
    content = profiles_content(profiles)
    (tmp_path / PROFILES_FILE).write_bytes(content)
    read = shipped_profiles(tmp_path)
    assert repr(read) == repr(profiles)  # NaN does not equal itself
    assert [profile.profile_id for profile in read] == [profile.profile_id for profile in profiles]
    listed = json.dumps([to_document(profile) for profile in profiles])
    assert len(content) < 0.5 * len(listed)
    assert content == profiles_content(profiles)
    (tmp_path / PROFILES_FILE).unlink()
    (tmp_path / PLAIN_FILE).write_text(listed, encoding="utf-8")  # as folders of older versions have them
    assert repr(shipped_profiles(tmp_path)) == repr(profiles)


@pytest.mark.parametrize(
    "content", ["{", "[1]", '[{"workload": "x", "device_type": "d", "kernels": {"name": ["a"], "mean_s": []}}]']
)
def test_a_broken_file_is_one_clear_error(tmp_path: Path, content: str) -> None:
    (tmp_path / PLAIN_FILE).write_text(content)
    with pytest.raises(ModelError, match=r"profiles\.json cannot be read"):
        shipped_profiles(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", profiles_content(())[:-9]])
def test_a_broken_compressed_file_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / PROFILES_FILE).write_bytes(content)
    with pytest.raises(ModelError, match=r"profiles\.json\.gz cannot be read"):
        shipped_profiles(tmp_path)
