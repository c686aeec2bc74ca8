"""A report of one's own: which jobs of a table harm others most."""

import json
import sys
from pathlib import Path
from statistics import geometric_mean

from rich.console import Console

from interfere import load_table
from interfere.data.tables import Table
from interfere.reports import document as doc
from interfere.reports.html_page import write_html_page
from interfere.reports.numbers import TIMES, count_noun
from interfere.reports.terminal import TerminalDocument
from interfere.reports.text_forms import json_document


def worst_neighbours(table: Table) -> doc.Document:
    """Each job with the mean slowdown of whoever ran beside it, the worst first."""
    slowdowns: dict[str, list[float]] = {}
    for pair in table.ok_pairs:
        slowdowns.setdefault(pair.neighbour, []).append(pair.slowdown)
    means = sorted(((name, geometric_mean(found)) for name, found in slowdowns.items()), key=lambda row: -row[1])
    lead = f"Of {count_noun(len(means), 'job')}, {means[0][0]} harms others most."
    columns = (doc.Column("job"), doc.Column("slows others", TIMES))
    rows = doc.Table(title="Harm to others", columns=columns, rows=tuple(means))
    plot = doc.RowPlot(
        title="Mean slowdown of whoever runs beside each job",
        axis=doc.Axis(title="slowdown (time beside the job ÷ time alone)", form=TIMES, is_log=True, lines=((1.0, ""),)),
        series=(doc.Series(name="mean"),),
        rows=tuple(doc.PlotRow(label=name, values=((doc.Estimate(mean),),)) for name, mean in means),
    )
    return doc.Document(f"Neighbours of {table.name}", (doc.Sentence(lead, tone=doc.Tone.LEAD), rows, plot))


if __name__ == "__main__":
    report = worst_neighbours(load_table(sys.argv[1]))
    write_html_page(Path("report.html"), report)
    Path("report.json").write_text(json.dumps(json_document(report)), encoding="utf-8")
    Console().print(TerminalDocument(report))
