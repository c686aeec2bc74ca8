"""The dataset card of a table: what was measured, where and how, and how far to trust it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from interfere.data.intended_use import intended_uses
from interfere.data.parquet import write_atomically
from interfere.data.quality import MIN_ICC, TableQuality, domain_tables, group_quality, table_quality
from interfere.data.tables import Table

CARD_FILE = "card.md"
DEVICE_NOTES = {
    "cpu-core": (
        "**One CPU core, time-sliced.** Two processes pinned to the same core share it as two contexts share a GPU in "
        "time slices. It is not a GPU: no memory capacity, no SMs, another scheduler. Good for trying things out."
    ),
}
CPU_PROTOCOL = """\
Block = A · AB · B · AB on persistent pinned processes, edges cut, whole steps only; random order of the pairs and
swapped roles from pass to pass. `slowdown` = step time beside the neighbour ÷ step time alone, geometric mean over
blocks; `lower`, `upper` = 95 % t interval of the mean. A block is refused when the other loop ran 95 % of the time or
less, with too few steps, a clock drift of 3 % or more, or over 10 % of the core taken by third processes, and repeated
twice; a pair that still lacks a block of a pass that all pairs get is `unstable` and never imputed."""

COMMAND_PROTOCOL = """\
Programs that are not ours, restarted for every block. Block = A · AB · B: one alone, the other started and warmed up
beside it, the first ended; start-up and warm-up cut, whole steps between step marks only; random order of the pairs and
swapped roles from pass to pass. `slowdown` = step time beside the neighbour ÷ step time alone, geometric mean over
blocks; `lower`, `upper` = 95 % t interval of the mean. A block is refused when a command ended or left the core, with
under 20 steps in a window, a clock drift of 3 % or more, or over 10 % of the core taken by third processes, and
repeated twice; a pair that still lacks a block is `unstable` and never imputed. On other devices than a CPU core
clock and third processes are not watched. A GPU is pinned by CUDA_VISIBLE_DEVICES, and nvidia-smi gives utilisation,
power and memory while a command runs alone; this was never run on a GPU by the authors of this release."""
IMPORT_PROTOCOL = (
    "As its publisher measured it: the `card.md` of the import says how it was read and what is not as published."
)
PROTOCOL_BY_SOURCE = {"cpu": CPU_PROTOCOL, "command": COMMAND_PROTOCOL}


def dataset_card(table: Table, *, command: str = "", note: str = "") -> str:
    """The card as Markdown. `command` measures the table again; `note` is a line on how the measurement went."""
    figures = table_quality(table)
    rows = table.measurements
    device_types = sorted({row.device_type for row in rows} | {job.device_type for job in table.jobs})
    sources = sorted({row.source for row in rows} | {job.source for job in table.jobs})
    measured_here = set(sources) <= set(PROTOCOL_BY_SOURCE)
    times_s = [row.measured_at_s for row in rows if row.measured_at_s == row.measured_at_s]
    day = datetime.fromtimestamp(max(times_s), UTC).date().isoformat() if times_s else "unknown"
    machines = sorted({row.device_name for row in rows if row.device_name}) or ["unknown"]
    block_counts = [len(pair.passes) for pair in table.ok_pairs if pair.victim != pair.neighbour]
    blocks_per_row = "no"
    if block_counts:
        low, high = min(block_counts), max(block_counts)
        blocks_per_row = f"{low} to {high}" if high > low else f"{low}"
    lines = [
        f"# Table `{table.name}`",
        "",
        f"- device type: {', '.join(device_types)}; sharing mode: {', '.join(sorted({row.mode for row in rows}))}",
        f"- machine: {'; '.join(machines)}",
        f"- measured: {day}; source: {', '.join(sources)}",
        f"- {len(table.jobs)} jobs, {len(table.pairs)} ordered pairs, {blocks_per_row} blocks a row",
        *group_count_lines(table),
        f"- rows by status: {', '.join(f'{name} {count}' for name, count in figures.rows_by_status)}",
        *((f"- {note}",) if note else ()),
        "",
        *(text for name, text in DEVICE_NOTES.items() if name in device_types),
        "",
        "## Quality",
        *_quality_lines(table),
        "",
        *group_quality_lines(table),
        f"Below an ICC of {MIN_ICC} training refuses a table. What the additive fit explains needs no interaction.",
        "",
        "## What it may be used for",
        *(f"- {use.text()}" for use in intended_uses(table)),
        "",
        "## Protocol",
        "\n\n".join(dict.fromkeys(PROTOCOL_BY_SOURCE.get(source, IMPORT_PROTOCOL) for source in sources)),
        "",
        "## Jobs",
        "| workload | step alone | sd between windows | busy |",
        "|---|---|---|---|",
        *(
            f"| {job.workload} | {job.step_time_s * 1e3:.2f} ms | {job.step_time_sd_s / job.step_time_s:.1%} | "
            f"{job.busy_frac:.0%} |"
            for job in table.jobs
        ),
        "",
        "## Files",
        "`jobs.parquet` profiles alone · `pairs.parquet` ordered pairs"
        + " · `groups.parquet` each victim of each group of three or more" * bool(table.groups)
        + (
            " · `raw.parquet` every block and side, refused ones included, from which each slowdown is computed"
            * measured_here
        )
        + ". Times in seconds, sizes in bytes.",
        "",
        *((f"Measure again: `{command}`", "") if command else ()),
        "Licence: CC BY 4.0, the interfere contributors." if measured_here else "Licence: that of its publisher.",
        "",
    ]
    return "\n".join(lines).replace("nan%", "–").replace("nan", "–")


def _quality_lines(table: Table) -> list[str]:
    """The figures of each domain, one column a domain."""
    domains = domain_tables(table) or (("value", table),)
    titles = [title for title, _ in domains] if len(domains) > 1 else ["value"]
    figures = [table_quality(domain_table) for _, domain_table in domains]
    rows = (
        (
            f"agreement of two single blocks, ICC(1,1) of log slowdown ({_icc_rows(figures)} rows)",
            [f"{each.icc:.3f}" for each in figures],
        ),
        ("additive fit, R² of log slowdown ~ victim + neighbour", [f"{each.additive_r2:.3f}" for each in figures]),
        (
            "slowdown median / p90 / max",
            [f"{each.slowdown_median:.2f} / {each.slowdown_p90:.2f} / {each.slowdown_max:.2f}" for each in figures],
        ),
        ("rows past 2 ×", [f"{each.over_two_frac:.0%}" for each in figures]),
        ("core taken by third processes, p90", [f"{each.steal_p90:.1%}" for each in figures]),
    )
    return [
        f"| figure | {' | '.join(titles)} |",
        "|---|" + "---|" * len(titles),
        *(f"| {label} | {' | '.join(values)} |" for label, values in rows),
    ]


def group_count_lines(table: Table) -> list[str]:
    """One line of a list for the groups of each size: how many, and their rows by status."""
    return [
        f"- {figures.title}: {figures.groups} groups of {figures.jobs} jobs, "
        f"rows by status: {', '.join(f'{name} {count}' for name, count in figures.rows_by_status)}"
        for figures in group_quality(table)
    ]


def group_quality_lines(table: Table) -> list[str]:
    """The quality of the groups of each size as a Markdown section; nothing where there are none."""
    figures = group_quality(table)
    if not figures:
        return []
    return [
        "## Groups of three and more",
        "| groups | ICC(1,1) of log slowdown (rows) | slowdown median / p90 / max | taken by third processes, p90 |",
        "|---|---|---|---|",
        *(
            f"| {each.title} | {each.icc:.3f} ({each.icc_rows}) | {each.slowdown_median:.2f} / "
            f"{each.slowdown_p90:.2f} / {each.slowdown_max:.2f} | {each.steal_p90:.1%} |"
            for each in figures
        ),
        "",
    ]


def _icc_rows(figures: Sequence[TableQuality]) -> str:
    return " + ".join(str(each.icc_rows) for each in figures)


def write_card(path: Path, table: Table, *, command: str = "", note: str = "") -> Path:
    """Write `card.md` into the table's folder, and return its path."""
    text = dataset_card(table, command=command, note=note)
    write_atomically(path / CARD_FILE, lambda temporary: Path(temporary).write_text(text))
    return path / CARD_FILE
