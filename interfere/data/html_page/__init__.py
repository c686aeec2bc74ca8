"""A measurement table as one HTML page: no network, no script, no library.

Laws: one file with everything in it; names are shown as text, whatever they hold; equal tables give equal bytes.
"""

from importlib.resources import files
from pathlib import Path

from interfere.data.dataset_card import device_notes
from interfere.data.html_page.appendix import (
    HOW_TO_READ,
    definition_list,
    measurement_dates,
    provenance,
    solo_profiles_table,
)
from interfere.data.html_page.domain_section import domain_overview, domain_section
from interfere.data.html_page.domain_summary import domain_summaries, with_sorted_rows
from interfere.data.html_page.formatting import count_noun
from interfere.data.html_page.group_section import group_section
from interfere.data.html_page.html_builder import Html, tag
from interfere.data.tables import Table
from interfere.file_writing import write_atomically

# The browser loads nothing and runs nothing, whatever text a table holds.
CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def table_page(table: Table, *, sha256: str = "", notes: str = "") -> str:
    """The HTML of the page. `sha256` is the checksum of the table, `notes` the text of its dataset card."""
    table = with_sorted_rows(table)
    domains = domain_summaries(table)
    anchors = tuple(f"domain-{k}" for k in range(len(domains)))
    head = [tag("h1", table.name or "table"), tag("p", _summary(table), class_="lead")]
    head += map(_note, device_notes(table))
    if len(domains) > 1:
        head.append(domain_overview(domains, anchors))
    body = [
        tag("header", *head),
        *(domain_section(domain, anchor) for domain, anchor in zip(domains, anchors, strict=True)),
        *(
            []
            if domains or table.groups
            else [tag("p", tag("b", "No pairs."), " The table holds profiles alone.", class_="verdict bad")]
        ),
        *group_section(table),
        tag("section", tag("h2", "Jobs alone"), solo_profiles_table(table), id="jobs"),
        tag("section", tag("h2", "Provenance"), *provenance(table, sha256, notes), id="provenance"),
        tag("section", tag("h2", "How to read this page"), definition_list(HOW_TO_READ), id="how"),
    ]
    return html_document(f"{table.name}: slowdowns of shared devices", *body)


def html_document(title: str, *parts: str, extra_style: str = "") -> str:
    """A complete HTML document with the style of this package, and CSS rules of a page's own; parts that are plain text
    are escaped."""
    style = Html(files(__package__).joinpath("style.css").read_text(encoding="utf-8") + extra_style)
    meta = (
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=CONTENT_SECURITY_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", style),
    )
    return f"<!doctype html>\n{tag('html', tag('head', *meta), tag('body', tag('main', *parts)), lang='en')}\n"


def write_table_page(path: Path, table: Table, *, sha256: str = "", notes: str = "") -> Path:
    """Write the page to `path`, whole or not at all. Raises UnfitError where that cannot be written."""
    text = table_page(table, sha256=sha256, notes=notes)
    write_atomically(path, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))
    return path


def _summary(table: Table) -> str:
    rows = table.measurements
    devices = sorted({job.device_type for job in table.jobs} | {row.device_type for row in rows})
    modes = sorted({row.mode for row in rows})
    jobs = len({j.workload for j in table.jobs})
    on = f" on {', '.join(devices)}" if devices else ""
    shared = f", shared by {', '.join(modes)}" if modes else ""
    pairs = count_noun(len(table.pairs), "ordered pair")
    groups = len({(row.members, row.device_type, row.mode, row.metric) for row in table.groups})
    grouped = f" and {count_noun(groups, 'group')} of three and more" if groups else ""
    return f"{count_noun(jobs, 'job')}{on}{shared}: {pairs}{grouped}, measured {measurement_dates(table)}."


def _note(text: str) -> Html:
    """A note of a dataset card; of Markdown only **bold** is rendered."""
    return tag("p", *(tag("b", part) if k % 2 else part for k, part in enumerate(text.split("**"))))
