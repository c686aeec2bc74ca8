"""Does a snapshot contradict itself? Every contradiction at once, each with its field path."""

import math
from collections.abc import Iterable

from interfere.errors import Violation
from interfere.records import ObjectiveKind, Snapshot


def validate_snapshot(snapshot: Snapshot) -> list[Violation]:
    """Violations of: some device, unique device ids, unique job ids, no job pending and running or running twice."""
    bad: list[Violation] = []
    if not snapshot.devices:
        bad.append(
            Violation(
                field="devices",
                what="must not be empty",
                value="[]",
                remedy="send the devices of the scope, busy ones too",
            )
        )
    bad += _repeats((f"devices[{k}].id", d.id) for k, d in enumerate(snapshot.devices))
    once: dict[tuple[str, int], None] = {}  # a gang is on each of its devices, on none twice
    residents = []
    for k, device in enumerate(snapshot.devices):
        for r, job in enumerate(device.residents):
            again = job.gpus > 1 and (job.id, job.gpus) in once and job.id not in {o.id for o in device.residents[:r]}
            once[job.id, job.gpus] = None
            if not again:
                residents.append((f"devices[{k}].residents[{r}].id", job.id))
    pending = [(f"pending[{k}].id", job.id) for k, job in enumerate(snapshot.pending)]
    if snapshot.objective is ObjectiveKind.COMPLETION_TIME:
        jobs = [(f"pending[{k}]", job) for k, job in enumerate(snapshot.pending)]
        for k, device in enumerate(snapshot.devices):
            jobs += [(f"devices[{k}].residents[{r}]", job) for r, job in enumerate(device.residents)]
        bad += [
            Violation(
                field=f"{path}.remaining_s",
                what="is needed by the objective completion_time",
                value="absent",
                remedy="send the seconds it would still run alone, or take another objective",
            )
            for path, job in jobs
            if math.isnan(job.remaining_s)
        ]
    return bad + _repeats([*residents, *pending]) + _gangs(snapshot)


def _gangs(snapshot: Snapshot) -> list[Violation]:
    """A gang that runs is on as many devices as it takes; on fewer only where some were left out."""
    places: dict[str, list[str]] = {}
    gpus: dict[str, int] = {}
    for k, device in enumerate(snapshot.devices):
        for r, job in enumerate(device.residents):
            places.setdefault(job.id, []).append(f"devices[{k}].residents[{r}].gpus")
            gpus.setdefault(job.id, job.gpus)
    return [
        Violation(
            field=paths[-1], what=f"runs on {len(paths)} devices", value=str(gpus[name]),
            remedy="a gang is a resident of each of its devices, and of no other",
        )
        for name, paths in places.items()
        if gpus[name] > 1 and (len(paths) > gpus[name] or (len(paths) < gpus[name] and not snapshot.partial))
    ]  # fmt: skip


def _repeats(places: Iterable[tuple[str, str]]) -> list[Violation]:
    first: dict[str, str] = {}
    bad = []
    for field, name in places:
        if name in first:
            bad.append(
                Violation(
                    field=field,
                    what=f"repeats {first[name]}",
                    value=repr(name),
                    remedy="an id may appear once in a snapshot",
                )
            )
        first.setdefault(name, field)
    return bad
