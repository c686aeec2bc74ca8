"""The dataset card of a table: what was measured, where and how, how far to trust it, and what it may be used for.

Two documents of one table: the card that lies beside its files, and the page, which adds to its parts a section of each
domain, more of the jobs alone, the reasons of rows that are not ok, and a glossary. Law 1: names are shown as text,
whatever they hold. Law 2: equal tables give equal documents, whatever the order of their rows.
"""

import math
from collections.abc import Iterable, Sequence
from types import SimpleNamespace

from interfere.data.cards.domain_section import MAX_SHOWN, domain_section
from interfere.data.cards.domain_summary import count_reasons, domain_summaries, with_sorted_rows
from interfere.data.quality import (
    MIN_ICC,
    MIN_LOSS,
    GangExcess,
    domain_tables,
    gang_excesses,
    group_quality,
    intended_uses,
    repeatabilities,
    table_quality,
)
from interfere.data.tables import Table
from interfere.devices import CPU_CORE
from interfere.records import GroupMeasurement, PairMeasurement
from interfere.records.checks import METRICS
from interfere.records.measurements import GANG_SUFFIX
from interfere.reports import document as doc
from interfere.reports.document import (
    Code,
    Column,
    Document,
    Items,
    Part,
    Section,
    Sentence,
    Tone,
    Words,
    table_of,
    with_code,
)
from interfere.reports.numbers import (
    BYTES,
    COUNT,
    DASH,
    DURATION,
    TIMES,
    NumberFormat,
    count_noun,
    fixed,
    format_date,
    percent,
)
from interfere.sharing_modes import CPU_MODES, DEFAULT_MODE

CARD_FILE = "card.md"
# What a card says beside what its rows tell.
REMARK, MEASURE_AGAIN, PROTOCOL = "remark: ", "Measure again: ", "Protocol"
SLICE_PROTOCOL = """\
`slowdown` = step time beside the neighbour ÷ step time alone, over whole steps and the slices that count; of several
blocks the geometric mean, a disturbed block weighing less. A fixed piece of work beside each slice measures the clock
of the core, and the CPU time of all processes tells what third ones took: both are divided or subtracted out, and a
slice that is more disturbed than the others is dropped. `lower`, `upper` = 95 % interval, from the differences between
slices and between blocks; it is wide where much had to be corrected. A row is `unstable`, and never imputed, only where
a job did not run."""
CPU_PROTOCOL = f"""\
Block = rounds of A · AB · B · AB (four in 2.2 s) in slices of .12 s or three steps, in random order, on persistent
pinned processes; random order of the pairs and swapped roles from pass to pass.
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
SERVICE_PROTOCOL = """\
A service, named `name@rate`, answers requests that arrive in an open loop at that rate per second, whoever runs beside
it; its busy share alone is the offered load. Latency is answer less arrival, of the requests that arrived in the slices
that count and of which third processes took 5 % at most. `latency_p50` and `latency_p99` rows: quantile beside the
neighbour ÷ quantile alone. Requests alone are pooled over all blocks and campaigns of the table, so a second campaign
repeats the latency beside the neighbour; these are pooled over the blocks of a row. The interval is from order
statistics or a jackknife over slices, whichever is wider, times the factor by which campaigns differ more. The
`step_time_mean` of a service is a throughput: near 1 as long as it keeps up with its arrivals. Where it does not, its
queue grows as long as a slice lasts, and the latency rows say no more than that."""
GENERATING_PROTOCOL = """\
Rows `ttft_p50` and `ttft_p99` are of the time to first token, from the arrival of a request to the first token of its
answer; `tpot_p50` and `tpot_p99` of the time per output token after it, the mean of an answer."""
GANG_PROTOCOL = """\
A gang, named `name-gang`, is two processes of `torch.distributed` on two cores, which meet after each step. Beside a
job its first rank shares its core, beside a gang both do. Waiting for the other rank counts as a pause."""
GROUP_PROTOCOL = """\
Groups of three and more: a round holds a slice of each job alone and two of all together (A · ABC · B · C · ABC) in
random order; shared slices grow with the number of jobs. The groups are a greedy balanced design: jobs, and pairs of
jobs in a group, self pairs included, are measured alike often. What counts, repeats and intervals are those of pairs.
Copies of a workload are one row, with the slowdown of each in every block."""
PROTOCOL_BY_SOURCE = {"cpu": CPU_PROTOCOL, "command": COMMAND_PROTOCOL}
ICC, SHARE = fixed(3), percent(1)


def dataset_card(table: Table, *, command: str = "", note: str = "", protocol: Sequence[str] = ()) -> Document:
    """Return the dataset card of a table.

    `command` is the command line that measures the table again, `note` a remark on how the measurement went, and
    `protocol` the paragraphs that say how it was measured: those of this version where it is empty.
    """
    sources = _sources(table)
    measured_here = set(sources) <= set(PROTOCOL_BY_SOURCE)
    uses = tuple(use.text() for use in intended_uses(table))
    legend = (
        "ICC(1,1) tells how well two single blocks of a pair agree in log slowdown; 1 is perfect, and training refuses "
        f"a table below {MIN_ICC}. The additive fit explains log slowdown by an effect of the victim and one of the "
        "neighbour; R² is the share of the variance that it explains. Stolen is the share of a core that third "
        "processes took. Median, p90 and max are of the slowdowns of all rows; above 2 × is the share of these rows."
    )
    licence = "CC BY 4.0, the interfere contributors." if measured_here else "that of its publisher."
    return Document(
        ("Table ", Code(table.name)),
        (
            Items((*table_facts(table), *((f"{REMARK}{note}",) if note else ()))),
            *device_notes(table),
            Section("Quality", quality_tables(table)),
            *group_quality_section(table),
            Sentence(legend),
            Section("What it may be used for", (Items(uses),)),
            Section("What it does not tell", (Items(_out_of_scope(table)),)),
            Section(PROTOCOL, tuple(Sentence(with_code(text)) for text in protocol or _protocols(table, sources))),
            Section("Jobs", (table_of("Jobs", JOB_COLUMNS, table.jobs),)),
            Section("Files", (_files(table, measured_here=measured_here),)),
            *((Sentence((MEASURE_AGAIN, Code(command))),) if command else ()),
            Section("Licence and citation", (Sentence(f"Licence: {licence}"), _citation(table, ours=measured_here))),
        ),
    )


def table_facts(table: Table) -> tuple[Words, ...]:
    """Return lines on what was measured: device types, machine and date, numbers of rows, and how far repeats agree."""
    rows = table.measurements
    device_types = sorted({row.device_type for row in rows} | {job.device_type for job in table.jobs})
    if not rows:
        return f"device type: {', '.join(device_types)}", f"{len(table.jobs)} jobs, no pairs"
    modes = ", ".join(sorted({row.mode for row in rows}))
    block_counts = [len(pair.passes) for pair in table.ok_pairs if pair.victim != pair.neighbour]
    blocks_per_row = _range_text((min(block_counts), max(block_counts))) if block_counts else "no"
    statuses = ", ".join(f"{name} {count}" for name, count in table_quality(table).rows_by_status)
    return (
        f"device type: {', '.join(device_types)}; sharing mode: {modes}",
        *_machine_lines(table),
        f"{len(table.jobs)} jobs, {len(table.pairs)} ordered pairs, {blocks_per_row} blocks a row",
        *group_counts(table),
        f"rows by status: {statuses}",
        *(
            f"{each.metric}, measured again ({each.later} against {each.earlier}): |ratio - 1| median "
            f"{each.median:.1%}, p90 {each.p90:.1%} of {each.rows} rows"
            for each in repeatabilities(table)
        ),
        *map(_excess_text, gang_excesses(table)),
    )


def _sources(table: Table) -> list[str]:
    return sorted({row.source for row in table.measurements} | {job.source for job in table.jobs})


def _out_of_scope(table: Table) -> tuple[str, ...]:
    """Return what the rows of a table do not tell."""
    metrics = {row.metric for row in table.measurements}
    return (
        "other device types, sharing modes and software stacks: slowdowns of one do not hold on another",
        "jobs that are not named here: only a model predicts them, with its intervals",
        *(() if table.groups else ("three and more jobs on one device: no group was measured",)),
        *(("latencies of requests: step times alone were measured",) if metrics <= {METRICS[0]} else ()),
    )


def _citation(table: Table, *, ours: bool) -> Sentence:
    """Return how to cite a table."""
    if not ours:
        return Sentence("Cite its publisher.")
    return Sentence(("Cite as: The interfere contributors, table ", Code(table.name), f", measured {_day_of(table)}."))


def _excess_text(excess: GangExcess) -> str:
    return (
        f"gangs {excess.beside}: what they lose is {excess.median:.2f} of what the same jobs on one device lose (p10 "
        f"{excess.p10:.2f}, p90 {excess.p90:.2f} of {excess.rows} rows; jobs that lose under {MIN_LOSS:.0%} left out)"
    )


def device_notes(table: Table) -> list[Sentence]:
    """Return a note for each sharing mode of CPU cores in a table; no note for tables of other devices."""
    if all(job.device_type != CPU_CORE.name for job in table.jobs):
        return []
    modes = {row.mode for row in table.measurements if row.device_type == CPU_CORE.name} or {DEFAULT_MODE}
    notes = (mode.properties.cpu_note.partition(". ") for mode in CPU_MODES if mode in modes)
    return [Sentence(text, lead=f"{lead}.") for lead, _, text in notes]


def quality_tables(table: Table) -> tuple[doc.Table, doc.Table]:
    """Return a table of how well the rows agree and one of the slowdowns, with a row for each domain.

    A domain is a device type, sharing mode and metric.
    """
    domains = domain_tables(table) or (("all rows", table),)
    rows = [SimpleNamespace(title=title, quality=table_quality(domain_table)) for title, domain_table in domains]
    agreement = (
        Column("domain", of="title"),
        Column("ICC(1,1)", ICC, of="quality.icc"),
        Column("from rows", COUNT, of="quality.icc_rows"),
        Column("additive fit R²", ICC, of="quality.additive_r2"),
        Column("stolen p90", SHARE, of="quality.steal_p90"),
    )
    slowdowns = (
        Column("domain", of="title"),
        *(Column(name, TIMES, of=f"quality.slowdown_{name}") for name in ("median", "p90", "max")),
        Column("above 2 ×", percent(), of="quality.over_two_frac"),
    )
    return table_of("Agreement", agreement, rows), table_of("Slowdowns", slowdowns, rows)


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


def _protocols(table: Table, sources: Sequence[str]) -> tuple[str, ...]:
    """Return paragraphs on how this version measures the rows of each source of a table."""
    protocols = dict.fromkeys(PROTOCOL_BY_SOURCE.get(source, IMPORT_PROTOCOL) for source in sources)
    of_groups = [GROUP_PROTOCOL] if any(group.source == "cpu" for group in table.groups) else []
    measured = {row.victim for row in table.pairs if row.source == "cpu"}
    of_services = [SERVICE_PROTOCOL] if any(row.metric != "step_time_mean" for row in table.pairs) else []
    of_services += [GENERATING_PROTOCOL] if any(row.metric.startswith("ttft") for row in table.pairs) else []
    of_gangs = [GANG_PROTOCOL] if any(name.endswith(GANG_SUFFIX) for name in measured) else []
    return tuple(text.replace("\n", " ") for text in (*protocols, *of_groups, *of_services, *of_gangs))


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


def _machine_lines(table: Table) -> list[Words]:
    """Return lines that name the machine and the date of the pair measurements.

    Where group measurements are of another machine or date, a further line names those.
    """
    pairs_on, pairs_day = (
        _names((row.device_name for row in table.pairs or table.groups), "; ") or "unknown",
        _day_of(table),
    )
    lines: list[Words] = [f"machine: {pairs_on}", f"measured: {pairs_day}; source: {', '.join(_sources(table))}"]
    groups_on, groups_day = _names((row.device_name for row in table.groups), "; ") or "unknown", _day(table.groups)
    if table.pairs and table.groups and (groups_on, groups_day) != (pairs_on, pairs_day):
        lines.append(f"groups: on {groups_on}, measured {groups_day}")
    return lines


def _day_of(table: Table) -> str:
    return _day(table.pairs or table.groups)


def _day(rows: Sequence[PairMeasurement | GroupMeasurement]) -> str:
    """Return the date of the newest measurement in UTC; `unknown` where no row has a time."""
    times_s = [row.measured_at_s for row in rows if row.measured_at_s == row.measured_at_s]
    return format_date(max(times_s)) if times_s else "unknown"


def _range_text(ends: Sequence[int]) -> str:
    low, high = ends[0], ends[-1]
    return f"{low} to {high}" if high > low else f"{low}"


# --- the page of a table ----------------------------------------------------------------------------------------------

HOW_TO_READ = (
    (
        "slowdown",
        "time of a step beside the neighbour ÷ time of the same step alone. 1 × is no effect, 2 × is half the "
        "speed. The row names who is slowed (victim), the column who runs beside it (neighbour).",
    ),
    (
        "interval",
        "the 95 % confidence interval of the mean over repeats. A row without one has too few repeats, or its "
        "source gives none.",
    ),
    (
        "ICC",
        "intraclass correlation of single blocks, ICC(1,1): the share of the variance of log slowdown that lies "
        "between pairs and not between repeats. 1 is perfect agreement, 0 is noise.",
    ),
    (
        "additive R²",
        "share of the variance of log slowdown that a number per victim and a number per neighbour "
        "explain. Near 1, two numbers per job are enough; what they do not explain has to be measured in pairs.",
    ),
    ("unstable", "measured, but refused by a check of the measurement: kept with its reason, never imputed."),
    ("infeasible", "the two jobs cannot share the device at all."),
)
JOB_COLUMNS = (
    Column("workload", of="workload"),
    Column("step alone", DURATION, of="step_time_s"),
    Column("sd between windows", SHARE, of=lambda job: job.step_time_sd_s / job.step_time_s),
    Column("busy", percent(), of="busy_frac"),
)
# Facts that few tables have: a column appears where any job has one.
OPTIONAL_COLUMNS: tuple[tuple[str, str, NumberFormat], ...] = (
    ("peak memory", "memory_peak_bytes", BYTES),
    ("working set", "memory_working_set_bytes", BYTES),
    ("static peak", "static_memory_peak_bytes", BYTES),
    ("static step", "static_step_time_s", DURATION),
    ("GPU busy", "gpu_util_frac", percent()),
    ("memory busy", "memory_util_frac", percent()),
    ("SM active", "sm_active_frac", percent()),
    ("SM occupancy", "sm_occupancy_frac", percent()),
    ("tensor active", "tensor_active_frac", percent()),
    ("DRAM active", "dram_active_frac", percent()),
    ("power, W", "power_w", fixed(0, quantity="W")),
)


def table_document(table: Table, *, sha256: str = "", notes: str = "") -> Document:
    """Return the page of a table as a document.

    `sha256` is the checksum of the table, `notes` the text of its dataset card.
    """
    table = with_sorted_rows(table)
    domains = domain_summaries(table)
    parts: list[Part] = [Items(table_facts(table)), *device_notes(table)]
    if len(domains) > 1:
        parts.append(Section("Quality", quality_tables(table)))
    parts += [domain_section(domain, f"domain-{k}") for k, domain in enumerate(domains)]
    if not domains and not table.groups:
        parts.append(Sentence("The table holds profiles alone.", lead="No pairs.", tone=Tone.BAD))
    parts += [
        *_groups(table),
        Section("Jobs alone", (_profiles(table),), anchor="jobs"),
        Section("Provenance", _provenance(table, sha256, notes), anchor="provenance"),
        Section("How to read this page", (doc.Terms(HOW_TO_READ),), anchor="how"),
    ]
    return Document(table.name or "table", tuple(parts))


def _groups(table: Table) -> list[Section]:
    """Return a section on measured groups: counts and quality of each size, and the slowdown of every victim."""
    if not table.groups:
        return []
    victims = table_of(
        "Victims, the most slowed first",
        (
            Column("victim", of="victim"),
            Column("company", of=lambda row: ", ".join(row.company)),
            Column("device, mode", of=lambda row: f"{row.device_type}, {row.mode}"),
            Column("slowdown", TIMES, of="slowdown"),
            Column(
                "95 % interval",
                TIMES,
                of=lambda row: doc.Range(row.lower, row.upper) if math.isfinite(row.lower) else math.nan,
            ),
            Column("status", of=lambda row: row.reason or row.status.value),
        ),
        sorted(table.groups, key=_most_slowed_first),
        fold=MAX_SHOWN,
    )
    note = Sentence("Rows: one of each victim of each group. Company: the other jobs of its group.", tone=Tone.NOTE)
    sizes, title = group_quality_section(table)[0].parts, "Victims, the most slowed first"
    parts = (*sizes, Section(title, (note, victims)))
    return [Section("Groups of three and more", parts, anchor="groups")]


def _most_slowed_first(row: GroupMeasurement) -> tuple[object, ...]:
    """Return the sort key of a victim: the largest slowdown first, victims without a slowdown last."""
    slowdown = math.inf if math.isnan(row.slowdown) else -row.slowdown
    return slowdown, row.victim, row.company, row.device_type, row.mode, row.metric


def _profiles(table: Table) -> Part:
    """Return a table of the profiles of all jobs. A fact that no job has gets no column."""
    if not table.jobs:
        return Sentence("No profiles.", tone=Tone.NOTE)
    optional = [
        Column(name, form, of=field)
        for name, field, form in OPTIONAL_COLUMNS
        if any(math.isfinite(getattr(job, field)) for job in table.jobs)
    ]
    family = [Column("family", of=lambda job: job.family or DASH)] if any(job.family for job in table.jobs) else []
    columns = (*JOB_COLUMNS, Column("device", of="device_type"), *optional, *family, Column("source", of="source"))
    return table_of("Profiles of jobs alone", columns, table.jobs)


def _provenance(table: Table, sha256: str, notes: str) -> tuple[Part, ...]:
    """Return the checksum of a table, its rows by status and reason, and its dataset card."""
    censored = sum("censored" in pair.reason.lower() for pair in table.ok_pairs)
    beyond = f"{count_noun(censored, 'row')}: the true slowdown lies beyond the one given" if censored else "no row"
    parts: list[Part] = [doc.Terms((("sha256 of its files", sha256), ("censored", beyond)))]
    if reasons := count_reasons(table):
        columns = (Column("status"), Column("rows", COUNT), Column("reason given (the first of its kind)"))
        grid = doc.Table(title="Rows by status and reason", columns=columns, rows=reasons)
        parts.append(Section("Rows by status", (grid,)))
    if notes:
        parts.append(doc.Folded("The card written with the table", (doc.Verbatim(text=notes),)))
    return tuple(parts)


def _names(values: Iterable[str], between: str) -> str:
    return between.join(sorted({value for value in values if value}))
