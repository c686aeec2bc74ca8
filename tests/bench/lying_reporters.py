"""Errors of the online belief beside reporters that lie: `python -m tests.bench.lying_reporters`.

One of four lies, or two of eight. Every reporter sees every job; the site is as its table says, or has drifted from
it. Prints a row for each kind of lie, and the errors where each job has one reporter: beside them those of a least
squares fit to all windows that knows how the site drifted, below which nobody comes.
"""

import sys

import numpy as np

from interfere.predict.online.belief_state import PairObservation
from tests.predict.online.belief_streams import COPIES, LIES, ODD_JOBS, SUBTLE_LIES, Stream, run_stream

WINDOWS, NOISE = 1000, 0.05


def error(seeds: range, **kind: object) -> tuple[float, float]:
    """Return the mean relative error of all pairs, and the largest share of honest windows told as outliers."""
    results = [run_stream(Stream(noise=NOISE, windows=WINDOWS, seed=seed, **kind)) for seed in seeds]  # type: ignore[arg-type]
    jobs = list(range(24))
    return float(np.mean([each.error(jobs) for each in results])), max(each.honest_outliers for each in results)


def least_squares_error(seeds: range) -> float:
    """Return the mean relative error of least squares with the effects and variances by which sites drift."""
    errors = []
    for seed in seeds:
        stream = Stream(noise=NOISE, windows=WINDOWS, seed=seed, drifted=True)
        sent: list[PairObservation] = []
        result = run_stream(stream, sent.append)
        place = {f"w{k}": k for k in range(stream.jobs)}
        ends = np.array([(place[each.victim[0]], place[each.neighbour[0]]) for each in sent])
        x = np.array([each.log_predicted for each in sent])
        values = np.array([each.log_observed for each in sent]) - x
        n = stream.jobs
        design = np.zeros((len(sent), 2 * n + 2))
        for role in (0, 1):
            design[np.arange(len(sent)), role * n + ends[:, role]] = 1.0
        design[:, -2], design[:, -1] = 1.0, x
        prior = np.concatenate([np.full(n, 0.1**2), np.full(n, 0.07**2), [0.15**2, 0.3**2]])
        effects = np.linalg.solve(design.T @ design / NOISE**2 + np.diag(1.0 / prior), design.T @ values / NOISE**2)
        fitted = result.table * (1.0 + effects[-1]) + effects[-2] + effects[:n, None] + effects[None, n : 2 * n]
        errors.append(float(np.abs(np.expm1(np.maximum(fitted, 0.0) - result.truth)).mean()))
    return float(np.mean(errors))


def main(seeds: range) -> None:
    """Print the table."""
    cases: dict[str, dict[str, object]] = {"none": {}}
    cases |= {lie: {"lie": lie, "liars": (0,)} for lie in (*LIES, *SUBTLE_LIES, ODD_JOBS, COPIES)}
    cases |= {
        "times 2, first": {"lie": "times 2", "liars": (0,), "liar_first": 100},
        "two of eight": {"lie": "times 2", "liars": (0, 1), "reporters": 8},
    }
    for drifted in (False, True):
        print("site drifted" if drifted else "site as measured")
        for name, case in cases.items():
            found, outliers = error(seeds, shared=True, drifted=drifted, **case)
            print(f"  {name:21} error {found:.4f}, honest windows told as outliers {outliers:.3f}", flush=True)
        print(f"  one reporter a job: {error(seeds, drifted=drifted)[0]:.4f}", flush=True)
    print(f"  least squares that knows how the site drifted: {least_squares_error(seeds):.4f}")


if __name__ == "__main__":
    main(range(int(sys.argv[1]) if len(sys.argv) > 1 else 2))
