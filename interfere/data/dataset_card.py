"""The dataset card of a table: what was measured, where and how, and how far to trust it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from interfere.data.intended_use import intended_uses
from interfere.data.quality import MIN_ICC, TableQuality, domain_tables, group_quality, table_quality
from interfere.data.tables import Table
from interfere.devices import CPU_CORE
from interfere.file_writing import write_atomically
from interfere.records import GroupMeasurement, PairMeasurement
from interfere.sharing_modes import CPU_MODES, DEFAULT_MODE

CARD_FILE = "card.md"
SLICE_PROTOCOL = """\
`slowdown` = step time beside the neighbour ÷ step time alone, over whole steps and the slices that count; of several
blocks the geometric mean, a disturbed block weighing less. A fixed piece of work beside each slice measures the clock
of the core, and the CPU time of all processes tells what third ones took: both are divided or subtracted out, and a
slice that is more disturbed than the others is dropped. `lower`, `upper` = 95 % interval, from the differences between
slices and between blocks; it is wide where much had to be corrected. A row is `unstable`, and never imputed, only where
a job did not run."""
CPU_PROTOCOL = f"""\
Block = four rounds of A · AB · B · AB in slices of .12 s or three steps, in random order, on persistent pinned
processes; random order of the pairs and swapped roles from pass to pass.
{SLICE_PROTOCOL}"""

COMMAND_PROTOCOL = f"""\
Programs that are not ours, restarted for every block. Block = A · AB · B: one alone, the other started and warmed up
beside it, the first ended; start-up and warm-up cut, windows cut in slices of .5 s, whole steps between step marks
only; random order of the pairs and swapped roles from pass to pass. A block is refused and repeated twice when a
command ended or left the core, or made under 20 steps in a window.
{SLICE_PROTOCOL}
On other devices than a CPU core clock and third processes are not watched. A GPU is pinned by CUDA_VISIBLE_DEVICES, and
nvidia-smi gives utilisation, power and memory while a command runs alone; this was never run on a GPU by the authors of
this release."""
IMPORT_PROTOCOL = (
    "As its publisher measured it: the `card.md` of the import says how it was read and what is not as published."
)
GROUP_PROTOCOL = """\
Groups of three and more: a round holds a slice of each job alone and two of all together (A · ABC · B · C · ABC) in
random order; shared slices grow with the number of jobs. The groups are a greedy balanced design: jobs, and pairs of
jobs in a group, self pairs included, are measured alike often. What counts, repeats and intervals are those of pairs.
Copies of a workload are one row, with the slowdown of each in every block."""
PROTOCOL_BY_SOURCE = {"cpu": CPU_PROTOCOL, "command": COMMAND_PROTOCOL}


def dataset_card(table: Table, *, command: str = "", note: str = "") -> str:
    """The card as Markdown. `command` measures the table again; `note` is a line on how the measurement went."""
    figures = table_quality(table)
    rows = table.measurements
    device_types = sorted({row.device_type for row in rows} | {job.device_type for job in table.jobs})
    sources = sorted({row.source for row in rows} | {job.source for job in table.jobs})
    measured_here = set(sources) <= set(PROTOCOL_BY_SOURCE)
    block_counts = [len(pair.passes) for pair in table.ok_pairs if pair.victim != pair.neighbour]
    blocks_per_row = _range_text((min(block_counts), max(block_counts))) if block_counts else "no"
    lines = [
        f"# Table `{table.name}`",
        "",
        f"- device type: {', '.join(device_types)}; sharing mode: {', '.join(sorted({row.mode for row in rows}))}",
        *_machine_lines(table, sources),
        f"- {len(table.jobs)} jobs, {len(table.pairs)} ordered pairs, {blocks_per_row} blocks a row",
        *group_count_lines(table),
        f"- rows by status: {', '.join(f'{name} {count}' for name, count in figures.rows_by_status)}",
        *((f"- {note}",) if note else ()),
        "",
        "\n\n".join(device_notes(table)),
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
        "\n\n".join(_protocols(table, sources)),
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
            f" · `raw.parquet`{', `raw_groups.parquet`' * bool(table.groups)} every block and side, refused ones "
            "included, from which each slowdown is computed"
        )
        * measured_here
        + ". Times in seconds, sizes in bytes.",
        "",
        *((f"Measure again: `{command}`", "") if command else ()),
        "Licence: CC BY 4.0, the interfere contributors." if measured_here else "Licence: that of its publisher.",
        "",
    ]
    return "\n".join(lines).replace("nan%", "–").replace("nan", "–")


def device_notes(table: Table) -> list[str]:
    """What must be known of the device before anything else, for each sharing mode of CPU cores."""
    if all(job.device_type != CPU_CORE.name for job in table.jobs):
        return []
    modes = {row.mode for row in table.measurements if row.device_type == CPU_CORE.name} or {DEFAULT_MODE}
    return [mode.properties.cpu_note for mode in CPU_MODES if mode in modes]


def _protocols(table: Table, sources: Sequence[str]) -> list[str]:
    """How the rows of each source were measured."""
    protocols = dict.fromkeys(PROTOCOL_BY_SOURCE.get(source, IMPORT_PROTOCOL) for source in sources)
    of_groups = [GROUP_PROTOCOL] if any(group.source == "cpu" for group in table.groups) else []
    return [*protocols, *of_groups]


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


def _machine_lines(table: Table, sources: Sequence[str]) -> list[str]:
    """Machine and day of the pairs and, where they differ, those of the groups."""
    pairs_on, pairs_day = _machines(table.pairs or table.groups), _day(table.pairs or table.groups)
    lines = [f"- machine: {pairs_on}", f"- measured: {pairs_day}; source: {', '.join(sources)}"]
    groups_on, groups_day = _machines(table.groups), _day(table.groups)
    if table.pairs and table.groups and (groups_on, groups_day) != (pairs_on, pairs_day):
        lines.append(f"- groups: on {groups_on}, measured {groups_day}")
    return lines


def _machines(rows: Sequence[PairMeasurement | GroupMeasurement]) -> str:
    return "; ".join(sorted({row.device_name for row in rows if row.device_name})) or "unknown"


def _day(rows: Sequence[PairMeasurement | GroupMeasurement]) -> str:
    """The day of the newest row, in UTC."""
    times_s = [row.measured_at_s for row in rows if row.measured_at_s == row.measured_at_s]
    return datetime.fromtimestamp(max(times_s), UTC).date().isoformat() if times_s else "unknown"


def _range_text(ends: Sequence[int]) -> str:
    low, high = ends[0], ends[-1]
    return f"{low} to {high}" if high > low else f"{low}"


def group_count_lines(table: Table) -> list[str]:
    """One line of a list for the groups of each size: how many, blocks a row, and their rows by status."""
    return [
        f"- {figures.title}: {figures.groups} groups of {figures.jobs} jobs, "
        + (f"{_range_text(figures.blocks)} blocks a row, " if figures.blocks else "")
        + f"rows by status: {', '.join(f'{name} {count}' for name, count in figures.rows_by_status)}"
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
