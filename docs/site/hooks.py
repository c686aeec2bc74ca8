"""Hooks of MkDocs: what `docs/site/mkdocs.yml` runs while the site is built."""

from collections.abc import Iterator
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from docs.site.figures import figure_styles, with_figures
from docs.site.links import path_of, plain_fences, repository_pages, with_site_links
from docs.site.reference import REFERENCE_PAGES


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference pages, and the files outside docs/ that pages link to."""
    for page, write in REFERENCE_PAGES.items():
        files.append(File.generated(config, page, content=write()))
    files.append(File.generated(config, "assets/stylesheets/figures.css", content=figure_styles()))
    texts = {path_of(file.src_uri): file.content_string for file in files.documentation_pages()}
    in_navigation = set(_pages_in(config.nav))
    for page, text in repository_pages(texts).items():
        level = InclusionLevel.INCLUDED if page in in_navigation else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, page, content=text, inclusion=level))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs' signature
    """Draw figures, and lead links to pages of the site."""
    return plain_fences(with_site_links(with_figures(markdown), path_of(page.file.src_uri)))


def _pages_in(nav: Any) -> Iterator[str]:
    """Yield the pages that a navigation names, however deep."""
    for entry in nav.values() if isinstance(nav, dict) else nav:
        if isinstance(entry, str):
            yield entry
        else:
            yield from _pages_in(entry)
