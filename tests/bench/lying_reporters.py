"""Errors of the online belief beside reporters that lie: `python -m tests.bench.lying_reporters`.

One of four lies, or two of eight. Every reporter sees every job; the site is as its table says, or has drifted from
it. Prints a row for each kind of lie.
"""

import sys

import numpy as np

from tests.predict.online.belief_streams import COPIES, LIES, ODD_JOBS, SUBTLE_LIES, Stream, run_stream

WINDOWS, NOISE = 1000, 0.05


def error(seeds: range, **kind: object) -> tuple[float, float]:
    """Return the mean relative error of all pairs, and the largest share of honest windows told as outliers."""
    results = [run_stream(Stream(noise=NOISE, windows=WINDOWS, seed=seed, **kind)) for seed in seeds]  # type: ignore[arg-type]
    jobs = list(range(24))
    return float(np.mean([each.error(jobs) for each in results])), max(each.honest_outliers for each in results)


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


if __name__ == "__main__":
    main(range(int(sys.argv[1]) if len(sys.argv) > 1 else 2))
