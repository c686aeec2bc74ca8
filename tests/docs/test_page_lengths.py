"""Pages that operators and integrators read stay short: what grows there moves to a page of its own."""

import pytest

from tests.docs.architecture_page import ROOT


@pytest.mark.parametrize(
    ("page", "most_words"),
    [
        ("operations.md", 3_000),
        ("commands.md", 2_000),
        ("kubernetes.md", 2_900),
        ("requests.md", 2_200),
        ("whatif.md", 1_400),
        ("monitoring.md", 1_300),
        ("own-tables.md", 1_100),
    ],
)
def test_a_page_is_short(page: str, most_words: int) -> None:
    assert len((ROOT / "docs" / page).read_text(encoding="utf-8").split()) <= most_words
