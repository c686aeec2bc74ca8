"""The dataset card of a table: what was measured, where and how, how far to trust it, and what it may be used for.

A domain is a device type with a sharing mode and a metric. It is complete where most ordered pairs of its jobs were
measured. Below that, the card says what is missing: two different jobs were never run together, only one direction was
measured, or the pairs are too few for levels of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from interfere.data.quality import MIN_ICC, TableQuality, domain_tables, group_quality, table_quality
from interfere.data.tables import Table
from interfere.devices import CPU_CORE
from interfere.file_writing import write_atomically
from interfere.records import GroupMeasurement, PairMeasurement
from interfere.reports import document as doc
from interfere.reports.document import (
    Code,
    Column,
    Document,
    Items,
    Part,
    Section,
    Sentence,
    Words,
    table_of,
    with_code,
)
from interfere.reports.numbers import COUNT, DURATION, TIMES, fixed, format_date, percent
from interfere.reports.text_forms import markdown
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
ICC, SHARE = fixed(3), percent(1)


def dataset_card(table: Table, *, command: str = "", note: str = "") -> Document:
    """Return the dataset card of a table.

    `command` is the command line that measures the table again, `note` a remark on how the measurement went.
    """
    rows = table.measurements
    device_types = sorted({row.device_type for row in rows} | {job.device_type for job in table.jobs})
    modes = ", ".join(sorted({row.mode for row in rows}))
    sources = sorted({row.source for row in rows} | {job.source for job in table.jobs})
    measured_here = set(sources) <= set(PROTOCOL_BY_SOURCE)
    block_counts = [len(pair.passes) for pair in table.ok_pairs if pair.victim != pair.neighbour]
    blocks_per_row = _range_text((min(block_counts), max(block_counts))) if block_counts else "no"
    statuses = ", ".join(f"{name} {count}" for name, count in table_quality(table).rows_by_status)
    facts = (
        f"device type: {', '.join(device_types)}; sharing mode: {modes}",
        *_machine_lines(table, sources),
        f"{len(table.jobs)} jobs, {len(table.pairs)} ordered pairs, {blocks_per_row} blocks a row",
        *group_counts(table),
        f"rows by status: {statuses}",
        *((note,) if note else ()),
    )
    uses = tuple(use.text() for use in intended_uses(table))
    legend = (
        "ICC(1,1): agreement of two single blocks, of log slowdown. Additive fit: log slowdown ~ victim + neighbour. "
        "Median, p90, max: slowdowns; past 2 ×: of rows. Stolen: share of a core taken by third processes. "
        f"Below an ICC of {MIN_ICC} training refuses a table. What the additive fit explains needs no interaction."
    )
    jobs = table_of(
        "Jobs",
        (
            Column("workload", of="workload"),
            Column("step alone", DURATION, of="step_time_s"),
            Column("sd between windows", SHARE, of=lambda job: job.step_time_sd_s / job.step_time_s),
            Column("busy", percent(), of="busy_frac"),
        ),
        table.jobs,
    )
    licence = "CC BY 4.0, the interfere contributors." if measured_here else "that of its publisher."
    return Document(
        ("Table ", Code(table.name)),
        (
            Items(facts),
            *device_notes(table),
            Section("Quality", (quality_table(table),)),
            *group_quality_section(table),
            Sentence(legend),
            Section("What it may be used for", (Items(uses),)),
            Section("Protocol", _protocols(table, sources)),
            Section("Jobs", (jobs,)),
            Section("Files", (_files(table, measured_here=measured_here),)),
            *((Sentence(("Measure again: ", Code(command))),) if command else ()),
            Sentence(f"Licence: {licence}"),
        ),
    )


def device_notes(table: Table) -> list[Sentence]:
    """Return a note for each sharing mode of CPU cores in a table; no note for tables of other devices."""
    if all(job.device_type != CPU_CORE.name for job in table.jobs):
        return []
    modes = {row.mode for row in table.measurements if row.device_type == CPU_CORE.name} or {DEFAULT_MODE}
    notes = (mode.properties.cpu_note.partition(". ") for mode in CPU_MODES if mode in modes)
    return [Sentence(text, lead=f"{lead}.") for lead, _, text in notes]


class _DomainQuality(NamedTuple):
    title: str
    quality: TableQuality


def quality_table(table: Table) -> doc.Table:
    """Return a table with the quality figures of each domain (device type, sharing mode and metric)."""
    domains = domain_tables(table) or (("all rows", table),)
    return table_of(
        "Quality",
        (
            Column("domain", of="title"),
            Column("ICC(1,1)", ICC, of="quality.icc"),
            Column("from rows", COUNT, of="quality.icc_rows"),
            Column("additive fit R²", ICC, of="quality.additive_r2"),
            *(Column(name, TIMES, of=f"quality.slowdown_{name}") for name in ("median", "p90", "max")),
            Column("past 2 ×", percent(), of="quality.over_two_frac"),
            Column("stolen p90", SHARE, of="quality.steal_p90"),
        ),
        (_DomainQuality(title, table_quality(domain_table)) for title, domain_table in domains),
    )


def group_counts(table: Table) -> list[str]:
    """Return a line for each size of group: the number of groups, the blocks per row, and the rows by status."""
    return [
        f"{figures.title}: {figures.groups} groups of {figures.jobs} jobs, "
        + (f"{_range_text(figures.blocks)} blocks a row, " if figures.blocks else "")
        + f"rows by status: {', '.join(f'{name} {count}' for name, count in figures.rows_by_status)}"
        for figures in group_quality(table)
    ]


def group_quality_section(table: Table) -> list[Section]:
    """Return a section on the quality of measured groups by their size; no section where there are none."""
    title, figures = "Groups of three and more", group_quality(table)
    grid = table_of(
        title,
        (
            Column("groups", of="title"),
            Column("ICC(1,1)", ICC, of="icc"),
            Column("from rows", COUNT, of="icc_rows"),
            *(Column(name, TIMES, of=f"slowdown_{name}") for name in ("median", "p90", "max")),
            Column("stolen p90", SHARE, of="steal_p90"),
        ),
        figures,
    )
    return [Section(title, (grid,))] if figures else []


def _protocols(table: Table, sources: Sequence[str]) -> tuple[Part, ...]:
    """Return how the rows of each source of a table were measured, as sentences."""
    protocols = dict.fromkeys(PROTOCOL_BY_SOURCE.get(source, IMPORT_PROTOCOL) for source in sources)
    of_groups = [GROUP_PROTOCOL] if any(group.source == "cpu" for group in table.groups) else []
    return tuple(Sentence(with_code(text.replace("\n", " "))) for text in (*protocols, *of_groups))


def _files(table: Table, *, measured_here: bool) -> Sentence:
    words = "`jobs.parquet` profiles alone · `pairs.parquet` ordered pairs"
    if table.groups:
        words += " · `groups.parquet` each victim of each group of three or more"
    if measured_here:
        raw_groups = ", `raw_groups.parquet`" if table.groups else ""
        words += (
            f" · `raw.parquet`{raw_groups} every block and side, refused ones included, from which each slowdown is "
            "computed"
        )
    return Sentence(with_code(f"{words}. Times in seconds, sizes in bytes."))


def _machine_lines(table: Table, sources: Sequence[str]) -> list[Words]:
    """Return lines that name the machine and the date of the pair measurements.

    Where group measurements are of another machine or date, a further line names those.
    """
    pairs_on, pairs_day = _machines(table.pairs or table.groups), _day(table.pairs or table.groups)
    lines: list[Words] = [f"machine: {pairs_on}", f"measured: {pairs_day}; source: {', '.join(sources)}"]
    groups_on, groups_day = _machines(table.groups), _day(table.groups)
    if table.pairs and table.groups and (groups_on, groups_day) != (pairs_on, pairs_day):
        lines.append(f"groups: on {groups_on}, measured {groups_day}")
    return lines


def _machines(rows: Sequence[PairMeasurement | GroupMeasurement]) -> str:
    return "; ".join(sorted({row.device_name for row in rows if row.device_name})) or "unknown"


def _day(rows: Sequence[PairMeasurement | GroupMeasurement]) -> str:
    """Return the date of the newest measurement in UTC; `unknown` where no row has a time."""
    times_s = [row.measured_at_s for row in rows if row.measured_at_s == row.measured_at_s]
    return format_date(max(times_s)) if times_s else "unknown"


def _range_text(ends: Sequence[int]) -> str:
    low, high = ends[0], ends[-1]
    return f"{low} to {high}" if high > low else f"{low}"


def write_card(path: Path, table: Table, *, command: str = "", note: str = "") -> Path:
    """Write the dataset card `card.md` into a table's folder, and return the path of the card."""
    text = markdown(dataset_card(table, command=command, note=note))
    write_atomically(path / CARD_FILE, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))
    return path / CARD_FILE


# --- what a domain may be used for ------------------------------------------------------------------------------------

MIN_PAIRS_ALONE = 10  # unordered pairs that a training of its own needs
CALIBRATION_PAIRS = 20  # unordered pairs after which a domain's levels are its own, beside a large table of another
DENSE_SHARE = 0.5  # of all ordered pairs, from which a completion of the matrix is worth its name


class Limitation(StrEnum):
    """A gap in a table, with the uses that it rules out."""

    SELF_PAIRS_ONLY = (
        "only copies of one job were run together: may say whether a job shares with a copy of itself; says nothing "
        "about two different jobs"
    )
    TOO_FEW_TO_TRAIN = (
        "too few pairs for a model of its own: may calibrate the levels of a model that was trained on another device "
        "type; rankings of pairs that were not measured are those of the other device type"
    )
    LEVELS_BORROWED = (
        "fewer pairs than levels of its own need: predictions lean on other tables, and their intervals are too narrow"
    )
    ONE_DIRECTION = "most pairs were measured in one direction: what a job does to others is known of few"
    NOISE = "repeated blocks disagree: training refuses it; measure longer blocks, or on a quieter machine"
    NO_FACTS = "most jobs have no step time alone: jobs that were not measured in pairs cannot be told apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntendedUse:
    """The amount of measurements in a domain, and the uses that they support."""

    domain: str  # device type, mode, and metric where several
    jobs: int
    measured: int  # valid ordered pairs
    possible: int  # ordered pairs of its jobs
    limitations: tuple[Limitation, ...]

    def text(self) -> str:
        """Return the measurements and their uses as a line of text."""
        share = f"{self.measured} of {self.possible} ordered pairs of {self.jobs} jobs"
        if self.limitations:
            return f"{self.domain}: {share}. {'; '.join(self.limitations)}"
        kind = "a completion of the matrix" if self.measured >= DENSE_SHARE * self.possible else "predictions"
        return f"{self.domain}: {share}: may train a model of its own, for {kind} and for unseen jobs like these"


def intended_uses(table: Table) -> tuple[IntendedUse, ...]:
    """Return the intended use of each domain of a table, in order of the domains' names."""
    return tuple(_of_domain(title, domain_table) for title, domain_table in domain_tables(table))


def _of_domain(title: str, table: Table) -> IntendedUse:
    pairs = table.ok_pairs
    names = {name for pair in pairs for name in (pair.victim, pair.neighbour)}
    ordered = {(pair.victim, pair.neighbour) for pair in pairs}
    unordered = {tuple(sorted(pair)) for pair in ordered}
    mixed = {(a, b) for a, b in ordered if a != b}
    with_step_time = sum(job.step_time_s == job.step_time_s for job in table.jobs if job.workload in names)
    found = []
    if ordered and not mixed:
        found.append(Limitation.SELF_PAIRS_ONLY)
    if len(unordered) < MIN_PAIRS_ALONE:
        found.append(Limitation.TOO_FEW_TO_TRAIN)
    elif len(unordered) < CALIBRATION_PAIRS:
        found.append(Limitation.LEVELS_BORROWED)
    if mixed and 2 * sum((b, a) in mixed for a, b in mixed) < len(mixed):
        found.append(Limitation.ONE_DIRECTION)
    if table_quality(table).icc < MIN_ICC:
        found.append(Limitation.NOISE)
    if names and 2 * with_step_time < len(names):
        found.append(Limitation.NO_FACTS)
    return IntendedUse(
        domain=title, jobs=len(names), measured=len(ordered), possible=len(names) ** 2, limitations=tuple(found)
    )
