"""Transfer to a device type that the tables lack: Gavel's, each held out, after 0, 5, 20 and 60 pairs.

Suggested pairs are chosen among a random 70 % of all pairs, anew for each seed: the luck of one choice averages out.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from interfere.data.importers.gavel import import_gavel
from interfere.data.tables import Table
from interfere.predict.acceptance.score import speed
from interfere.predict.transfer.pair_belief import fit_transfer
from interfere.profiling.static.profiles import attach_static
from interfere.records import PairMeasurement
from tests.bench.history import record
from tests.data.importers.public_files import public

pytestmark = pytest.mark.bench
STEPS, SEEDS, SUGGESTED, CANDIDATE_SHARE = (0, 5, 20, 60), range(10), 12, 0.7
# Aimed at: .040 on the K80 after 20 pairs, .035 everywhere after 60. The P100 stays above: a fifth of its slowdowns is
# published as exactly 1 where it was less. From its own pairs alone the published ensemble errs .051 after 60 of them,
# .035 after 200 and .033 after 270 of all 337.
MAX_ERROR_20 = {"k80": 0.040, "p100": 0.066, "v100": 0.064}
MAX_ERROR_60 = {"k80": 0.035, "p100": 0.047, "v100": 0.035}
# Of the error after 20 random pairs, that after 12 suggested ones: aimed at 1.
MAX_SUGGESTED = {"k80": 1.0, "p100": 1.15, "v100": 1.05}
MIN_COVERAGE = 0.85
Pair = tuple[str, str]


class HeldOut:
    """One device type without its table: what the others know, and the truth."""

    def __init__(self, table: Table, device_type: str) -> None:
        self.sources = [
            replace(
                table,
                jobs=tuple(job for job in table.jobs if job.device_type != device_type),
                pairs=tuple(pair for pair in table.pairs if pair.device_type != device_type),
            )
        ]
        self.truth = {(p.victim, p.neighbour): p for p in table.ok_pairs if p.device_type == device_type}
        used = {name for pair in self.truth for name in pair}
        self.jobs = [job for job in table.jobs if job.device_type == device_type and job.workload in used]
        self.unordered: list[Pair] = sorted({(min(pair), max(pair)) for pair in self.truth})

    def measured(self, pairs: Sequence[Pair]) -> list[PairMeasurement]:
        """Both directions of unordered pairs, where they were published."""
        return [self.truth[each] for a, b in pairs for each in dict.fromkeys([(a, b), (b, a)]) if each in self.truth]

    def score(self, pairs: Sequence[Pair], hidden: Sequence[Pair]) -> tuple[float, float]:
        """(MAE of speed, coverage of 90 % intervals) on hidden ordered pairs, after measuring unordered ones."""
        answers = fit_transfer(self.sources, self.jobs, self.measured(pairs)).predict(hidden)
        truth = np.array([self.truth[pair].slowdown for pair in hidden])
        predicted = np.array([answer.slowdown for answer in answers])
        inside = [answer.lower <= value <= answer.upper for answer, value in zip(answers, truth, strict=True)]
        return float(np.abs(speed(np.log(predicted)) - speed(np.log(truth))).mean()), float(np.mean(inside))


def test_the_curves_of_each_device_type() -> None:
    got = import_gavel(public("gavel/oracle_throughputs.json"))
    table = Table(name="gavel", jobs=attach_static(got.jobs).jobs, pairs=got.pairs)
    figures: dict[str, float] = {}
    for device_type in MAX_ERROR_20:
        held_out = HeldOut(table, device_type)
        curve, chosen, by_chance = {k: [] for k in STEPS}, [], []
        for seed in SEEDS:
            order = [held_out.unordered[k] for k in np.random.default_rng(seed).permutation(len(held_out.unordered))]
            rest = {*order[max(STEPS) :]}
            hidden = [pair for pair in held_out.truth if (min(pair), max(pair)) in rest]
            for k in STEPS:
                curve[k].append(held_out.score(order[:k], hidden))
            candidates = order[: round(CANDIDATE_SHARE * len(order))]
            start = fit_transfer(held_out.sources, held_out.jobs, [])
            suggested = [(min(each.pair), max(each.pair)) for each in start.suggest(SUGGESTED, among=candidates)]
            unseen = [p for p in held_out.truth if (min(p), max(p)) not in {*suggested, *order[:20]}]
            chosen.append(held_out.score(suggested, unseen)[0])
            by_chance.append(held_out.score(order[:20], unseen)[0])
        for k in STEPS:
            error, coverage = np.mean(curve[k], axis=0).tolist()
            figures |= {f"{device_type} error {k}": error, f"{device_type} coverage {k}": coverage}
            print(f"{device_type}, {k} pairs: error {error:.4f}, coverage {coverage:.3f}")
        figures |= {f"{device_type} suggested {SUGGESTED}": float(np.mean(chosen))}
        figures |= {f"{device_type} suggested / random": float(np.mean(chosen) / np.mean(by_chance))}
        print(f"{device_type}: {SUGGESTED} suggested {np.mean(chosen):.4f}, 20 at random {np.mean(by_chance):.4f}")
    record("transfer", figures)
    for device_type, limit in MAX_ERROR_20.items():
        assert figures[f"{device_type} error 20"] <= limit
        assert figures[f"{device_type} error 60"] <= MAX_ERROR_60[device_type]
        assert all(figures[f"{device_type} coverage {k}"] >= MIN_COVERAGE for k in STEPS)
        assert figures[f"{device_type} suggested / random"] <= MAX_SUGGESTED[device_type]
