"""Builds HTML and SVG in which every text is escaped.

Law: a `str` is text, an `Html` is markup; only `tag` and `join` turn text into markup.
"""

from collections.abc import Iterable
from html import escape


class Html(str):
    """Markup that is not escaped again, unlike a plain `str`."""

    __slots__ = ()


VOID_ELEMENTS = frozenset({"br", "img", "meta"})


def join(parts: Iterable[str], between: str = "") -> Html:
    """Return the parts as one piece of markup. Plain text is escaped."""
    return Html(_escaped(between).join(map(_escaped, parts)))


def tag(name: str, /, *children: str, **attributes: str | float | bool | None) -> Html:
    """Return an HTML element.

    The attribute `class_` is written as class, `data_x` as data-x. None and False omit an attribute; True gives it no
    value.
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


def _escaped(part: str) -> str:
    return part if isinstance(part, Html) else escape(part)
