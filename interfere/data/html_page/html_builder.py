"""HTML that cannot be broken by what it holds: every string is escaped unless it was made here.

Law: a `str` is text, an `Html` is markup; nothing but `tag` and `join` makes the second from the first.
"""

from collections.abc import Iterable
from html import escape


class Html(str):
    """Markup. A plain `str` is text and gets escaped."""

    __slots__ = ()


VOID = frozenset({"br", "img", "meta"})


def join(parts: Iterable[str], between: str = "") -> Html:
    """Parts in a row; texts among them are escaped."""
    return Html(_escaped(between).join(map(_escaped, parts)))


def tag(name: str, /, *children: str, **attributes: str | float | bool | None) -> Html:
    """One element. `class_` means class, `data_x` data-x; None and False leave an attribute out, True has no value."""
    written = [name]
    for python_name, value in attributes.items():
        key = python_name.rstrip("_").replace("_", "-")
        if value is True:
            written.append(key)
        elif value is not None and value is not False:
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            written.append(f'{key}="{escape(text)}"')
    opened = f"<{' '.join(written)}>"
    return Html(opened if name in VOID else f"{opened}{join(children)}</{name}>")


def _escaped(part: str) -> str:
    return part if isinstance(part, Html) else escape(part)
