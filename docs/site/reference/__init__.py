"""Reference pages, written from what they describe: command line, Python names, wire contract, metrics, settings."""

from collections.abc import Callable, Mapping

from docs.site.reference.commands import commands_page
from docs.site.reference.contract import contract_page
from docs.site.reference.metrics import metrics_page
from docs.site.reference.python import protocols_page, python_page, records_page, testing_page
from docs.site.reference.settings import settings_page

REFERENCE_PAGES: Mapping[str, Callable[[], str]] = {
    "reference/commands.md": commands_page,
    "reference/python.md": python_page,
    "reference/records.md": records_page,
    "reference/protocols.md": protocols_page,
    "reference/testing.md": testing_page,
    "reference/contract.md": contract_page,
    "reference/metrics.md": metrics_page,
    "reference/settings.md": settings_page,
}
"""Page of the site → the function that writes its Markdown text."""
