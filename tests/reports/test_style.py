"""Colours, contrast, sizes and numbers of a page: it can be read, also without colour."""

import math
import re
from importlib.resources import files
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfere.records import NAN
from interfere.reports.html_page import CLASSES, EDGES, colour_class
from interfere.reports.numbers import (
    MAX_NAME,
    format_bytes,
    format_digits,
    format_duration,
    format_gib,
    format_slowdown,
    shorten_name,
)
from interfere.reports.svg import log_ticks
from tests.data.cards.page_tables import GIB, parsed, table_of


def test_colours_are_centred_on_one_and_reciprocal() -> None:
    assert colour_class(1.0) == "u0"
    assert colour_class(0.2) == CLASSES[0]
    assert colour_class(100.0) == CLASSES[-1]
    assert list(EDGES) == sorted(EDGES)
    assert len(EDGES) == len(CLASSES) - 1
    for k in range(1, 4):
        middle = (1.05, 1.15, 1.3)[k - 1] * 1.01
        assert colour_class(middle) == f"u{k}"
        assert colour_class(1 / middle) == f"d{k}"


def luminance(colour_: str) -> float:
    """Relative luminance of WCAG 2.2."""
    parts = [int(colour_[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def themes() -> dict[str, dict[str, str]]:
    css = files("interfere.reports").joinpath("style.css").read_text()
    blocks = [dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", b)) for b in re.findall(r":root \{(.*?)\}", css, re.S)]
    return {"light": blocks[0], "dark": blocks[1]}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_enough_contrast_with_its_background(theme: str) -> None:
    colours = themes()[theme]
    assert set(colours) == set(themes()["light"])
    for class_ in CLASSES:
        assert contrast(colours[class_], colours[f"{class_}-ink"]) >= 4.5, class_  # WCAG AA
    for ink in ("ink", "dim", "good", "bad", "unsure", "suffers", "causes"):
        for ground in ("page", "soft"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_cells_differ_without_colour(theme: str) -> None:
    shades = [luminance(themes()[theme][f"u{k}"]) for k in range(9)]
    assert shades == sorted(shades, reverse=theme == "light")


def test_values_are_printed_while_they_fit() -> None:
    def size(jobs: int) -> str:
        grid = parsed(table_of((f"j{k}" for k in range(jobs)), holes=False)).all("table", "heat")[0]
        return (grid.attributes["class"] or "").removeprefix("heat ")

    assert [size(n) for n in (16, 17, 28, 29, 45)] == ["wide", "medium", "medium", "dense", "dense tiny"]


def test_numbers_as_people_read_them() -> None:
    assert [format_slowdown(v) for v in (0.5, 1.584, 12.34, 100.0, NAN)] == ["0.50", "1.58", "12.3", "100", "–"]
    times = [format_duration(v).replace("\u00a0", " ") for v in (2.0, 0.00803, 3.5e-4, 0.1234, 2e-9, NAN)]
    assert times == ["2.00 s", "8.03 ms", "350 µs", "123 ms", "2.00 ns", "–"]
    assert [format_bytes(v).replace("\u00a0", " ") for v in (1.5 * GIB, 5e6, 2048.0)] == ["1.5 GiB", "5 MiB", "2 KiB"]
    assert [format_digits(v) for v in (2010.0, 999.4, 0.9313, 12.34)] == ["2,010", "999", "0.931", "12.3"]
    assert [format_gib(v) for v in (0.5 * GIB, 61 * GIB, 2048 * GIB, NAN)] == ["0.5 GiB", "61 GiB", "2,048 GiB", "–"]
    long = "Recommendation-with-a-tower (batch size 8192)"
    assert len(shorten_name(long)) == MAX_NAME
    assert shorten_name(long).endswith("(batch size 8192)")
    assert shorten_name("ResNet-18 (batch size 16)") == "ResNet-18 (batch size 16)"


@given(st.floats(0.2, 0.99), st.floats(1.01, 100.0), st.floats(60.0, 400.0))
def test_labels_of_an_axis_do_not_touch(low: float, high: float, span: float) -> None:
    found = log_ticks(low, high, span)
    assert 1.0 in found
    places = [math.log(t / low) / math.log(high / low) * span for t in found]
    assert all(b - a >= 16.9 for a, b in pairwise(places))
