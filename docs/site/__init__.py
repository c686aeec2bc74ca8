"""Builds the documentation site: `make docs` runs MkDocs on docs/ and writes build/site.

What no page can say once and for all is generated: links out of docs/, reference pages, figures. Nothing generated is
kept in the repository.
"""
