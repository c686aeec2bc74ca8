"""Hints on names of jobs: labels that recur, and rows of a file of names where names differ in numbers or hashes alone.

Whether sdxl-gen-45 and sdxl-gen-46 are one workload, as resnet-18 and resnet-50 are not, no name tells: the rows are a
proposal. Names that recur over jobs are taken for names of workloads, and are in no proposal.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# A number, or a hash with a digit and a letter, between separators. The number that begins the name of a Slurm array's
# task (123_4) is that of its array.
_SLOT = re.compile(r"(?<=[-_./])(?:\d+|(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{6,})(?![A-Za-z0-9])")
_LAST_SLOT = re.compile(r"[-_./]\*$")
MAX_NAMES_FRAC = 0.75  # names over jobs: above it most jobs are compared with nothing
MAX_TEMPLATES = 12  # in a hint
MAX_JOBS_PER_NAME = 1.5  # above it the names recur
PLAIN = re.compile(r"[^,\"\s]+")  # what stands in a CSV without quotes


@dataclass(frozen=True, slots=True, kw_only=True)
class NameTemplate:
    """Names that are equal but for numbers or hashes."""

    text: str  # the names with * for what differs, such as sdxl-gen-*
    pattern: str  # a regular expression of exactly such names
    names: int

    @property
    def workload(self) -> str:
        """The name proposed for the workload: the template without a last slot."""
        return _LAST_SLOT.sub("", self.text)

    @property
    def row(self) -> str:
        """The row of a file of names `pattern,workload` that makes the names one workload."""
        return f"{self.pattern},{self.workload}"


def name_templates(workload_of: Mapping[str, str]) -> tuple[NameTemplate, ...]:
    """Return the templates of the workloads of jobs that differ in slots alone, those of most names first.

    `workload_of` holds the workload of each job by job id. One name is enough where a workload has the proposed name,
    as web-10 beside web, which web-0 to web-9 are called.
    """
    jobs = Counter(workload_of.values())
    alike: dict[str, list[str]] = defaultdict(list)
    for name in jobs:
        if PLAIN.fullmatch(name) and _SLOT.search(name):
            alike[_SLOT.sub("*", name)].append(name)
    templates = [_template(names) for names in alike.values()]
    proposed = [
        template
        for template, names in zip(templates, alike.values(), strict=True)
        if (len(names) > 1 or template.workload in jobs)
        and sum(jobs[name] for name in names) < MAX_JOBS_PER_NAME * len(names)
    ]
    return tuple(sorted(proposed, key=lambda each: (-each.names, each.text)))


def _template(names: list[str]) -> NameTemplate:
    """Return the template of names with equal text between their slots; a slot that never differs is text."""
    between = _SLOT.split(names[0])
    values = [set(column) for column in zip(*map(_SLOT.findall, names), strict=True)]
    text, pattern = between[0], re.escape(between[0])
    for k, (of_slot, after) in enumerate(zip(values, between[1:], strict=True)):
        fixed = len(of_slot) == 1 and (len(names) > 1 or k + 1 < len(values))
        value = next(iter(of_slot))
        text += (value if fixed else "*") + after
        of_numbers = r"\d+" if all(each.isdigit() for each in of_slot) else "[0-9a-f]+"
        pattern += (re.escape(value) if fixed else of_numbers) + re.escape(after)
    return NameTemplate(text=text, pattern=f"^{pattern}$".replace(r"\-", "-"), names=len(names))


def naming_hint(workload_of: Mapping[str, str], recurring: Sequence[tuple[str, int]], by: str) -> str:
    """Return a hint on names that may be fewer workloads: rows for --workloads where names differ in numbers alone, and
    labels for --by where almost every job has a name of its own; else an empty text.

    `workload_of` holds the workload of each job by job id, `recurring` the result of `recurring_labels`.
    """
    hints = []
    if templates := name_templates(workload_of)[:MAX_TEMPLATES]:
        found = ", ".join(f"{each.text} ({each.names} names)" for each in templates)
        rows = " ".join(("pattern,workload", *(each.row for each in templates)))
        hints.append(f"names differ in numbers alone: {found}; where these are one workload each, --workloads: {rows}")
    names = len(set(workload_of.values()))
    if len(workload_of) >= 4 and names > MAX_NAMES_FRAC * len(workload_of):
        labels = ", ".join(f"--by {name} ({values} names)" for name, values in recurring[:3])
        told = f"these labels recur: {labels}" if labels else "no label recurs, so hardly any can be compared"
        hints.append(f"{len(workload_of)} jobs have {names} names by {by}: {told}")
    return "; ".join(hints)
