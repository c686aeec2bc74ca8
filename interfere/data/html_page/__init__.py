"""A table as one HTML page to look at: no network, no script, no library.

Laws: one file with everything in it; whatever a name holds is shown as text; equal tables give equal bytes.
"""

from importlib.resources import files
from pathlib import Path

from interfere.data.dataset_card import DEVICE_NOTES
from interfere.data.html_page.appendix import HOW_TO_READ, jobs_alone, listed, measured_when, provenance
from interfere.data.html_page.domain_section import overview, section
from interfere.data.html_page.domain_summary import domains, sorted_table
from interfere.data.html_page.formatting import plural
from interfere.data.html_page.html_builder import Html, tag
from interfere.data.parquet import replace_file
from interfere.data.tables import Table

# Nothing is loaded and nothing runs, whatever the text of a table may hold.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(table: Table, *, sha256: str = "", notes: str = "") -> str:
    """The whole page. `sha256` names the files, `notes` is the text of the card written with them."""
    table = sorted_table(table)
    found = domains(table)
    anchors = tuple(f"domain-{k}" for k in range(len(found)))
    head = [tag("h1", table.name or "table"), tag("p", _summary(table), class_="lead")]
    head += [_note(DEVICE_NOTES[name]) for name in sorted({j.device_type for j in table.jobs} & set(DEVICE_NOTES))]
    if len(found) > 1:
        head.append(overview(found, anchors))
    body = [
        tag("header", *head),
        *(section(domain, anchor) for domain, anchor in zip(found, anchors, strict=True)),
        *([] if found else [tag("p", tag("b", "No pairs."), " The table holds profiles alone.", class_="verdict bad")]),
        tag("section", tag("h2", "Jobs alone"), jobs_alone(table), id="jobs"),
        tag("section", tag("h2", "Provenance"), *provenance(table, sha256, notes), id="provenance"),
        tag("section", tag("h2", "How to read this page"), listed(HOW_TO_READ), id="how"),
    ]
    return document(f"{table.name}: slowdowns of shared devices", *body)


def document(title: str, *parts: str) -> str:
    """A whole page in our style; texts among the parts are escaped."""
    style = Html(files(__package__).joinpath("style.css").read_text(encoding="utf-8"))
    meta = (
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", style),
    )
    return f"<!doctype html>\n{tag('html', tag('head', *meta), tag('body', tag('main', *parts)), lang='en')}\n"


def write_page(path: Path, table: Table, *, sha256: str = "", notes: str = "") -> Path:
    """Write the page to `path`, whole or not at all. Raises UnfitError where that cannot be written."""
    text = page(table, sha256=sha256, notes=notes)
    replace_file(path, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))
    return path


def _summary(table: Table) -> str:
    devices = sorted({j.device_type for j in table.jobs} | {p.device_type for p in table.pairs})
    modes = sorted({p.mode for p in table.pairs})
    jobs = len({j.workload for j in table.jobs})
    on = f" on {', '.join(devices)}" if devices else ""
    shared = f", shared by {', '.join(modes)}" if modes else ""
    pairs = plural(len(table.pairs), "ordered pair")
    return f"{plural(jobs, 'job')}{on}{shared}: {pairs}, measured {measured_when(table)}."


def _note(text: str) -> Html:
    """A note of a card: its **bold** words bold, nothing else of Markdown."""
    return tag("p", *(tag("b", part) if k % 2 else part for k, part in enumerate(text.split("**"))))
