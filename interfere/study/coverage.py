"""How much of a trace the truth knows, which a reader must know before any gain, and which pairs to measure first.

A job counts as known where the truth has a pair of its workload with a workload of the same trace. Jobs on several
devices are told apart: no table of GPUs measured a gang beside a gang.

The pairs to measure first are those that narrow the answer most. A pair counts by the GPU hours in which jobs meet as
this pair when everybody shares with whoever is there: of workloads with h_i and h_j GPU hours of all H, h_i · h_j / H.
What a measurement tells of other pairs is the belief of `interfere.predict.transfer`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches

import numpy as np

from interfere.errors import InvalidInputError
from interfere.predict.transfer.pair_belief import OrderedPair, PairBelief, pair_belief
from interfere.predict.transfer.process import pair_space, source_of_model
from interfere.sim.truth import GANG_EXCESS, TruthTable
from interfere.sim.world import HOUR_S, World

MAX_WORKLOADS = 24  # with the most GPU hours, whose pairs may be named: 576 ordered pairs
MIN_SHARE = 0.01  # of jobs and of GPU hours: below both, a gain of nothing would be an artefact of what is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The jobs and GPU hours of a trace: all of them, the part that the truth covers, and the jobs on several devices
    in this part."""

    jobs: int
    known_jobs: int
    known_gang_jobs: int
    gpu_h: float
    known_gpu_h: float
    known_gang_gpu_h: float

    @property
    def job_share(self) -> float:
        """The share of the jobs that the truth covers."""
        return self.known_jobs / max(self.jobs, 1)

    @property
    def gpu_h_share(self) -> float:
        """The share of the GPU hours that the truth covers."""
        return self.known_gpu_h / max(self.gpu_h, 1e-12)

    @property
    def has_gangs(self) -> bool:
        """Whether the truth covers jobs on several devices, which may then share."""
        return self.known_gang_jobs > 0

    def facts(self) -> dict[str, float]:
        """Return all figures by name."""
        return asdict(self) | {"job_share": self.job_share, "gpu_h_share": self.gpu_h_share}

    def note(self) -> str:
        """Return the coverage in one line."""
        text = f"truth covers {self.job_share:.1%} of the trace's jobs and {self.gpu_h_share:.1%} of its GPU hours"
        if not self.has_gangs:
            return text
        return (
            f"{text}; {self.known_gang_gpu_h / self.known_gpu_h:.1%} of these GPU hours are of jobs on several GPUs, "
            "which no table of GPUs measured in pairs: policies with -one-gpu let none of them share, for the others "
            f"they lose {GANG_EXCESS:g} of what they would on one GPU, as gangs on two CPU cores do"
        )


def coverage_of(truth: TruthTable, worlds: Sequence[World]) -> Coverage:
    """Return how many jobs and GPU hours of these worlds the truth covers."""
    jobs = [job for world in worlds for job in world.jobs]
    present = [k for k, workload in enumerate(truth.workloads) if workload in {job.workload for job in jobs}]
    known = {truth.workloads[k] for k in present if np.isfinite(truth.table[k, present]).any()}
    counts, hours = np.zeros((2, 2), dtype=np.int64), np.zeros((2, 2))  # [is known, is a gang]
    for job in jobs:
        place = int(job.workload in known), int(job.gpus > 1)
        counts[place] += 1
        hours[place] += job.gpus * job.duration_s / HOUR_S
    return Coverage(
        jobs=len(jobs),
        known_jobs=int(counts[1].sum()),
        known_gang_jobs=int(counts[1, 1]),
        gpu_h=float(hours.sum()),
        known_gpu_h=float(hours[1].sum()),
        known_gang_gpu_h=float(hours[1, 1]),
    )


def require_coverage(coverage: Coverage, truth: TruthTable, worlds: Sequence[World]) -> None:
    """Raise InvalidInputError where the truth covers next to nothing of a trace, because sharing would then seem
    useless.

    The error lists names of workloads that may mean the same.
    """
    if coverage.job_share >= MIN_SHARE or coverage.gpu_h_share >= MIN_SHARE:
        return
    workloads = list(dict.fromkeys(job.workload or "(unnamed)" for world in worlds for job in world.jobs))
    names = Counter(job.workload for world in worlds for job in world.jobs if job.workload)
    rows = suggested_map([name for name, _ in names.most_common()], truth.workloads)
    suggestion = f"; names that may mean the same, for --workloads: {'; '.join(rows[:5])}" if rows else ""
    unnamed = "" if names else "; its jobs name no workload: import it again with --workloads FILE"
    raise InvalidInputError(
        f"the truth knows {coverage.job_share:.1%} of the trace's jobs and {coverage.gpu_h_share:.1%} of its GPU "
        "hours: what sharing would bring cannot be said",
        value=f"the trace's workloads: {', '.join(workloads[:8])}; the truth's: {', '.join(truth.workloads[:8])}",
        remedy=f"name the table's workloads with --workloads FILE (CSV: pattern,workload), measure pairs of its "
        f"workloads (`interfere onboard`), or name no policy that shares{suggestion}{unnamed}",
    )


def suggested_map(names: Iterable[str], workloads: Sequence[str]) -> list[str]:
    """Return rows `pattern,workload` for names that resemble the name of a workload, in the order of the names."""
    plain = {_plain(workload): workload for workload in workloads}
    rows = []
    for name in names:
        word = _plain(name)
        inside = [other for other in plain if len(word) > 3 and (word in other or (len(other) > 3 and other in word))]
        close = sorted(inside, key=len)[:1] or get_close_matches(word, plain, n=1, cutoff=0.75)
        if close:
            rows.append(f"^{name}$,{plain[close[0]]}")
    return rows


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


# --- what is not known ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownWorkload:
    """A workload of the trace of which the truth has no pair."""

    workload: str  # empty: jobs that name none
    jobs: int
    gpu_h: float


def unknown_workloads(truth: TruthTable, worlds: Sequence[World]) -> tuple[UnknownWorkload, ...]:
    """Return the workloads of which the truth has no pair, most GPU hours first."""
    counts = Counter(job.workload for world in worlds for job in world.jobs)
    known = {name for name, row in truth.index.items() if np.isfinite(truth.table[row]).any()}
    return tuple(
        UnknownWorkload(workload=name, jobs=counts[name], gpu_h=hours)
        for name, hours in _gpu_hours(worlds).items()
        if name not in known
    )


def gpu_hours(worlds: Sequence[World]) -> dict[str, float]:
    """Return the GPU hours of each named workload, most first."""
    return {name: hours for name, hours in _gpu_hours(worlds).items() if name}


def _gpu_hours(worlds: Sequence[World]) -> dict[str, float]:
    """Return the GPU hours of each workload, most first; "" holds those of jobs that name no workload."""
    hours: dict[str, float] = {}
    for world in worlds:
        for job in world.jobs:
            hours[job.workload] = hours.get(job.workload, 0.0) + job.gpus * job.duration_s / HOUR_S
    return dict(sorted(hours.items(), key=lambda item: (-item[1], item[0])))


# --- what to measure --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingPair:
    """An unordered pair without a measurement, and the value of measuring it."""

    names: tuple[str, str]
    gpu_h: float  # in which jobs would meet as this pair
    error_now: float  # expected absolute error of its two speeds
    narrows: float  # by which the expected error of speeds falls, weighted by GPU hours, as a share of what it is now

    @property
    def text(self) -> str:
        """The names of the pair in words."""
        first, second = self.names
        return f"{first} beside a second copy of it" if first == second else f"{first} beside {second}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingTruth:
    """The share of co-location hours whose pairs are not measured, and the pairs to measure first."""

    unmeasured_share: float  # of the GPU hours of all pairs
    pairs: tuple[MissingPair, ...]


def missing_truth(
    truth: TruthTable,
    tried: Collection[frozenset[str]],
    hours: Mapping[str, float],
    count: int,
) -> MissingTruth:
    """Return the share of hours without measured pairs, and the pairs to measure first.

    `tried`: unordered pairs with a row of measurements, including infeasible ones. Empty where the truth is a model's
    prediction. `hours`: GPU hours of each workload of the trace, most first.
    """
    names = list(hours)
    shares = np.array(list(hours.values()))
    together = np.outer(shares, shares) / max(float(shares.sum()), 1e-12)
    known = np.array([[frozenset((a, b)) in tried for b in names] for a in names], dtype=bool).reshape(together.shape)
    position = {name: k for k, name in enumerate(names)}
    names = names[:MAX_WORKLOADS]
    kept = together[: len(names), : len(names)]
    found = _belief(truth, tried, names).suggest(count, weights=kept) if names else ()
    pairs = []
    for each in found:
        i, j = (position[name] for name in each.pair)
        gpu_h = float(kept[i, j]) * (1 if i == j else 2)
        pairs.append(MissingPair(names=each.pair, gpu_h=gpu_h, error_now=each.error_now, narrows=each.gain))
    unmeasured = float(together[~known].sum()) / max(float(together.sum()), 1e-12)
    return MissingTruth(unmeasured_share=unmeasured, pairs=tuple(pairs))


def _belief(truth: TruthTable, tried: Collection[frozenset[str]], names: Sequence[str]) -> PairBelief:
    """Return a belief about the slowdowns of these workloads: additive effects of the truth, corrected by every
    measured pair.

    Where nothing was measured, the truth is the predictions of a model, and these are the belief.
    """
    logs = np.full((len(names), len(names)), np.nan)
    for i, j in np.ndindex(logs.shape):
        if names[i] in truth.index and names[j] in truth.index:
            logs[i, j] = np.log(truth.table[truth.index[names[i]], truth.index[names[j]]])
    known = np.isfinite(logs)
    mean = float(logs[known].mean()) if known.any() else float(np.nanmean(np.log(truth.table)))
    centred = np.where(known, logs - mean, 0.0)
    own = centred.sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    others = centred.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    filled = np.where(known, logs, mean + own[:, None] + others[None, :])
    unknown = np.full(len(names), np.nan)
    space = pair_space(tuple(names), (source_of_model("the truth", filled),), unknown, np.zeros((len(names), 0)))
    measured: dict[OrderedPair, float] = {}
    if tried:
        measured = {(names[i], names[j]): float(np.exp(logs[i, j])) for i, j in np.argwhere(known)}
    return pair_belief(space, measured, tried)
