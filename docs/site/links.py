"""Turns links between files of the repository into links between pages of the site.

A page of docs/ keeps its path. Any other file that a page links to becomes a page below `repository/`: Markdown as it
is, other text as a block of code, a folder as the list of its files. So every link works in a checkout, and on the site
without a network.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs/"
_FENCED = re.compile(r"(^(?:```|~~~~).*?^(?:```|~~~~)$)", re.DOTALL | re.MULTILINE)
# A path of a link or of a picture; addresses with a scheme have a colon.
_TARGET = re.compile(r"""(?:(?<=\]\()|(?<=\bsrc=")|(?<=\bsrcset="))([^)"\s#:]+)(?=[)#"])""")
_LANGUAGES = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".proto": "proto", ".py": "python"}


def page_of(path: str) -> str:
    """Return the page of the site that shows a file of the repository, both as paths with forward slashes."""
    if path.startswith(DOCS):
        return path.removeprefix(DOCS)
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


def path_of(page: str) -> str:
    """Return the file of the repository that a page shows."""
    if not page.startswith("repository/"):
        return DOCS + page
    path = page.removeprefix("repository/")
    return path if (ROOT / path).exists() else path.removesuffix(".md")


def linked_paths(text: str, path: str) -> list[str]:
    """Return the files of the repository that the Markdown text of `path` links to, in order."""
    return [found for target in _targets(text) if (found := _resolve(target, path)) is not None]


def with_site_links(text: str, path: str) -> str:
    """Return the Markdown text of `path` with every link to a file of the repository leading to its page."""
    here = posixpath.dirname(page_of(path))

    def page_link(target: re.Match[str]) -> str:
        found = _resolve(target[0], path)
        return target[0] if found is None else posixpath.relpath(page_of(found), here or ".")

    pieces = _FENCED.split(text)
    pieces[::2] = [_TARGET.sub(page_link, piece) for piece in pieces[::2]]
    return "".join(pieces)


def repository_pages(texts: Mapping[str, str]) -> dict[str, str]:
    """Return page → Markdown text of every file outside docs/ that the pages link to, directly or through another.

    `texts` are the Markdown texts by their paths in the repository.
    """
    pages: dict[str, str] = {}
    unread = [linked for path, text in texts.items() for linked in linked_paths(text, path)]
    while unread:
        path = unread.pop()
        if path.startswith(DOCS) or page_of(path) in pages:
            continue
        pages[page_of(path)] = text = _page_text(path)
        unread += linked_paths(text, path)
    return pages


def plain_fences(text: str) -> str:
    """Return the text with the names of code blocks that tests read (```python NAME) taken off."""
    return re.sub(r"^```(\w+) [\w-]+$", r"```\1", text, flags=re.MULTILINE)


def _page_text(path: str) -> str:
    file = ROOT / path
    if file.is_dir():
        names = sorted(each.name for each in file.iterdir() if each.is_file())
        return f"# {path}\n\n" + "\n".join(f"- [{name}]({file.name}/{name})" for name in names) + "\n"
    text = file.read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    language = _LANGUAGES.get(file.suffix, "text")
    return f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n~~~~{language}\n{text.rstrip()}\n~~~~\n"


def _targets(text: str) -> Iterable[str]:
    return (target for piece in _FENCED.split(text)[::2] for target in _TARGET.findall(piece))


def _resolve(target: str, path: str) -> str | None:
    """Return the file or folder that a relative link leads to; of a folder its README; None where there is none."""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    readme = f"{found}/README.md"
    if (ROOT / readme).is_file():
        return readme
    return found if not found.startswith("..") and (ROOT / found).exists() else None
