"""Sentences of the documentation are short: at most 20 words on average, on every page."""

import re
from statistics import fmean

import pytest

from tests.docs.architecture_page import ROOT

MAX_MEAN_WORDS = 20.0
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if "site" not in path.parts
)

_BLOCKS = re.compile(r"^(```|~~~~).*?^\1\s*?$|<!--.*?-->|\A---\n.*?^---$", re.DOTALL | re.MULTILINE)
_OTHER_LINES = re.compile(r"^\s*(\||#|<|!\[|\[[^\]]+\]:).*$", re.MULTILINE)  # tables, headings, markup, pictures
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+", re.MULTILINE)
_CODE = re.compile(r"`[^`]+`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?…])[\"')*_]*\s+|\n\s*\n")


def sentences(markdown: str) -> list[str]:
    """Return the sentences of a page: a list item or a paragraph ends one; code in a line is one word."""
    text = _OTHER_LINES.sub("\n", _BLOCKS.sub("\n\n", markdown))
    text = _LINK.sub(r"\1", _CODE.sub("code", _ITEM.sub("\n\n", text)))
    return [piece for piece in map(str.strip, _END.split(text)) if re.search(r"\w", piece)]


def words(sentence: str) -> int:
    """Return how many words a sentence has; signs that stand alone are none."""
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def mean_words(markdown: str) -> float:
    """Return the mean number of words of the sentences of a page; 0 for a page without any."""
    return fmean(map(words, found)) if (found := sentences(markdown)) else 0.0


@pytest.mark.parametrize("page", PAGES)
def test_the_sentences_of_a_page_are_short_on_average(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    longest = max(sentences(text), key=words, default="")
    assert mean_words(text) <= MAX_MEAN_WORDS, f"the longest has {words(longest)} words: {longest}"


def test_tables_code_headings_and_addresses_are_no_sentences() -> None:
    page = """# A heading of five words
One sentence, with `code of three words` and a [link of five words here](https://a.b/c.d). Two!

- three words here
- an item; with two parts
1. numbered

| a | table |
|---|---|
```bash
interfere serve. Not a sentence.
```
"""
    found = sentences(page)
    assert found[0] == "One sentence, with code and a link of five words here."
    assert found[1:] == ["Two!", "three words here", "an item; with two parts", "numbered"]
    assert [words(each) for each in found] == [11, 1, 3, 5, 1]
    assert mean_words(page) == pytest.approx(4.2)
    assert mean_words("```\ncode alone\n```\n") == 0.0


def test_a_sentence_goes_on_over_a_line_break_and_after_a_decimal_point() -> None:
    assert sentences("It takes 1.5\nseconds on average. Then it ends.") == [
        "It takes 1.5\nseconds on average.",
        "Then it ends.",
    ]
