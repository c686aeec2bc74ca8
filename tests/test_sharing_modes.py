"""Sharing modes: each is its word, words are parsed once, and code asks properties instead of comparing words."""

import json
import re
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfere.devices import possible_modes
from interfere.errors import InvalidInputError
from interfere.records import Device, Limits, PairMeasurement, Progress
from interfere.sharing_modes import DEFAULT_MODE, SharingMode, parse_sharing_mode

ROOT = Path(__file__).resolve().parents[1]
modes = st.sampled_from(SharingMode)


@given(modes)
def test_a_mode_is_its_word_wherever_it_is_stored(mode: SharingMode) -> None:
    assert mode == mode.value
    assert hash(mode) == hash(mode.value)
    assert f"{mode}" == mode.value
    assert json.dumps({mode: mode}) == json.dumps({mode.value: mode.value})
    with sqlite3.connect(":memory:") as database:
        assert database.execute("SELECT ?, typeof(?)", (mode, mode)).fetchone() == (mode.value, "text")
    assert parse_sharing_mode(mode.value) is mode
    assert Device(id="d", type="t", mode=mode.value).mode is mode


@given(st.text().filter(lambda text: text not in tuple(SharingMode)))
def test_a_word_that_is_no_mode_is_told_with_those_that_are(word: str) -> None:
    makers = (
        lambda: parse_sharing_mode(word),
        lambda: PairMeasurement(victim="a", neighbour="b", device_type="t", mode=word, slowdown=1.1, source="s"),
        lambda: Limits(choosable_modes=frozenset({word})),
        lambda: Progress(
            observation_id="o", job_id="j", workload="w", device_type="t", start_s=0.0, end_s=1.0, steps=1.0, mode=word
        ),
    )
    for make in makers:
        with pytest.raises(InvalidInputError) as caught:
            make()
        (violation,) = caught.value.violations
        assert violation.what == "unknown sharing mode"
        assert all(mode in violation.remedy for mode in SharingMode)


def test_no_mode_is_the_empty_word() -> None:
    assert Device(id="d", type="t").mode == ""


def test_one_mode_is_the_default_and_every_mode_says_what_it_is() -> None:
    assert [mode for mode in SharingMode if mode.properties.is_default] == [DEFAULT_MODE]
    for mode in SharingMode:
        properties = mode.properties
        assert properties.description
        assert bool(properties.cpu_cores) == bool(properties.cpu_setting) == bool(properties.cpu_note)
        assert not (properties.partitions_device and properties.on_every_gpu)
        assert mode in possible_modes("a device type that nobody knows")


def test_no_code_compares_a_mode_with_a_word() -> None:
    """A new mode with the properties of an old one is treated like it everywhere."""
    words = "|".join(SharingMode)
    comparison = re.compile(rf"""mode\b[^\n]{{0,20}}(==|!=|\bin\b|\bis\b)[^\n]{{0,20}}["']({words})["']""")
    folders = ("interfere", "features", "training", "serving")
    files = {path.resolve() for folder in folders for path in (ROOT / folder).rglob("*.py")}
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted(files)
        if "timeline" not in path.parts  # kernel schedulers of the simulation have names of their own
        for line in path.read_text(encoding="utf-8").splitlines()
        if comparison.search(line) or re.search(r"\bmode: str\b", line)
    ]
    assert found == []
