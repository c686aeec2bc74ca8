"""Pinning, and refusing politely where it cannot be had."""

import os

import pytest

from interfere.errors import UnfitError
from interfere.profiling import affinity

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin processes")


def test_a_core_is_picked_from_the_allowed_ones_and_nothing_changes() -> None:
    before = os.sched_getaffinity(0)
    assert affinity.pick_core() in before
    assert affinity.pick_core(max(before)) == max(before)
    assert os.sched_getaffinity(0) == before


def test_a_core_that_is_not_ours_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(UnfitError, match="may not use core 4096") as caught:
        affinity.pick_core(4096)
    assert str(max(os.sched_getaffinity(0))) in str(caught.value)


def test_a_system_without_affinity_is_refused_politely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")  # what macOS looks like
    with pytest.raises(UnfitError, match="cannot pin") as caught:
        affinity.pick_core()
    assert "shipped table" in caught.value.remedy


def test_a_system_that_refuses_is_refused_politely(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: int, cores: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)  # what a strict container looks like
    with pytest.raises(UnfitError, match="Operation not permitted"):
        affinity.pick_core(max(os.sched_getaffinity(0)))


def test_the_controller_stays_away_and_comes_back() -> None:
    before = os.sched_getaffinity(0)
    core = max(before)
    with affinity.avoid_cores(core):
        assert core not in os.sched_getaffinity(0) or len(before) == 1
    assert os.sched_getaffinity(0) == before


def test_the_processor_has_a_name() -> None:
    assert affinity.processor_name().strip()
