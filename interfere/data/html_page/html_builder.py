"""Builds HTML in which every text is escaped.

Law: a `str` is text, an `Html` is markup; only `tag` and `join` turn text into markup.
"""

from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """Markup, which is not escaped again. A plain `str` is text and is escaped."""

    __slots__ = ()


VOID_ELEMENTS = frozenset({"br", "img", "meta"})


def join(parts: Iterable[str], between: str = "") -> Html:
    """The parts one after the other; those that are plain text are escaped."""
    return Html(_escaped(between).join(map(_escaped, parts)))


def tag(name: str, /, *children: str, **attributes: str | float | bool | None) -> Html:
    """An HTML element.

    The attribute `class_` is written as class, `data_x` as data-x. None and False omit it; True gives it no value.
    """
    words = [name]
    for python_name, value in attributes.items():
        key = python_name.rstrip("_").replace("_", "-")
        if value is True:
            words.append(key)
        elif value is not None and value is not False:
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            words.append(f'{key}="{escape(text)}"')
    start_tag = f"<{' '.join(words)}>"
    return Html(start_tag if name in VOID_ELEMENTS else f"{start_tag}{join(children)}</{name}>")


def html_table(
    headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, numbers: frozenset[int], caption: str
) -> Html:
    """A plain table. The columns in `numbers` are aligned right; the first column is the heading of its row."""

    def cell(k: int, text: str) -> Html:
        class_ = "number" if k in numbers else None
        return tag("th", text, scope="row", class_=class_) if k == 0 else tag("td", text, class_=class_)

    head = tag(
        "tr",
        *(tag("th", h, scope="col", class_="number" if k in numbers else None) for k, h in enumerate(headings)),
    )
    body = (tag("tr", *(cell(k, text) for k, text in enumerate(row))) for row in rows)
    grid = tag(
        "table", tag("caption", caption, class_="hidden"), tag("thead", head), tag("tbody", *body), class_="plain"
    )
    return tag("div", grid, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _escaped(part: str) -> str:
    return part if isinstance(part, Html) else escape(part)
