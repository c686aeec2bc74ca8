"""Reads an HTML page back into its elements."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br"}


@dataclass
class Element:
    name: str
    attributes: Mapping[str, str | None]
    text: str = ""
    inside: list["Element"] = field(default_factory=list)

    def walk(self) -> Iterable["Element"]:
        yield self
        for child in self.inside:
            yield from child.walk()

    def all(self, name: str, class_: str = "") -> list["Element"]:
        return [
            e
            for e in self.walk()
            if e.name == name and (not class_ or class_ in (e.attributes.get("class") or "").split())
        ]

    @property
    def words(self) -> str:
        return " ".join([self.text, *(child.words for child in self.inside)])


class Tree(HTMLParser):
    """Builds elements, and fails on tags that do not close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Element("document", {})
        self._open = [self.root]
        self.feed(text)
        self.close()
        assert self._open == [self.root], "unclosed elements"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self._open[-1].inside.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().name == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].text += data


def figures(page: str) -> list[Element]:
    """The figures of a page, those of panels not counted."""
    return [each for section in Tree(page).root.all("section") for each in section.inside if each.name == "figure"]
