"""Large tables: error, time and memory of a fit on generated rows: `python -m tests.bench.many_rows 45000`.

Every ordered pair of the workloads on two device types. A slowdown is 1 + exp(z), with

    z = level + own_i + harm_j + u_i · w_j + (own_i and harm_j of the device type, smaller)

where u and w have `FACTORS` entries each. Half of the variance of each effect and factor shows in facts of the job;
the rest only its rows tell. Slowdowns are measured with a relative error of `NOISE`. A tenth of the unordered pairs is
hidden. Prints for each model the mean error of speed on the hidden rows, compared with the true speeds, the CPU seconds
of the fit, and the largest memory of the process so far. "Noise" is the mean error of the measured speeds themselves.
"""

import math
import resource
import sys
import time

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from interfere.features.pair import FeatureEncoder
from interfere.predict.acceptance.score import speed
from interfere.predict.manifest import Domain
from interfere.records import JobProfile
from interfere.sharing_modes import SharingMode
from interfere.training.dataset import METRIC, Dataset, PairRows
from interfere.training.models.catalogue import MODELS

FACTORS, NOISE, HIDDEN_SHARE = 6, 0.03, 0.1
DEVICE_TYPES = ("v100", "p100")
LEVEL, EFFECT, PRODUCT, OF_THE_TYPE = -1.0, 0.5, 0.5, 0.15  # standard deviations of z, but for its level
FACTS = ("gpu_util_frac", "memory_util_frac", "sm_active_frac", "tensor_active_frac")

Floats = NDArray[np.float64]


def generated(rows: int, seed: int) -> tuple[Dataset, Floats]:
    """Return a dataset of about `rows` rows with the true log slowdown of each, float64[p]."""
    rng = np.random.default_rng(seed)
    count = round(math.sqrt(rows / len(DEVICE_TYPES)))
    # 1. Draw what a job does and suffers: half of it is linear in six facts of its profile.
    facts = rng.normal(size=(count, FACTORS))

    def drawn(width: int, spread: float) -> Floats:
        shown = facts @ rng.normal(size=(FACTORS, width)) / math.sqrt(FACTORS)
        return np.asarray(spread * math.sqrt(0.5) * (shown + rng.normal(size=(count, width))))

    own, harm = drawn(1, EFFECT)[:, 0], drawn(1, EFFECT)[:, 0]
    u, w = drawn(FACTORS, 1.0), drawn(FACTORS, PRODUCT / math.sqrt(FACTORS))
    # 2. Every ordered pair on every device type.
    encoder = FeatureEncoder()
    i, j = (side.ravel() for side in np.indices((count, count)))
    parts, true_z = [], []
    for name in DEVICE_TYPES:
        jobs = [_profile(f"w{k:04d}", name, facts[k]) for k in range(count)]
        encoded = encoder.encode_jobs(jobs, name, SharingMode.TIMESLICE)
        parts.append(encoder.encode_pairs(encoded[i], encoded[j]))
        deviation = OF_THE_TYPE * (rng.normal(size=count)[i] + rng.normal(size=count)[j])
        true_z.append(LEVEL + own[i] + harm[j] + (u[i] * w[j]).sum(axis=1) + deviation)
    true_log = np.log1p(np.exp(np.concatenate(true_z)))
    # 3. Measure with noise.
    domain = np.repeat(np.arange(len(DEVICE_TYPES)), len(i))
    victim, neighbour = np.tile(i, len(DEVICE_TYPES)), np.tile(j, len(DEVICE_TYPES))
    measured = true_log + NOISE * rng.normal(size=len(true_log))
    names = tuple(f"w{k:04d}" for k in range(count))
    low, high = np.minimum(victim, neighbour), np.maximum(victim, neighbour)
    places, group = np.unique(low * count + high, return_inverse=True)
    dataset = Dataset(
        rows=PairRows(pairs=np.concatenate(parts), victim=victim + 1, neighbour=neighbour + 1, domain=domain + 1),
        log_slowdown=measured,
        weight=np.ones(len(measured)),
        lower=np.exp(measured - 2 * NOISE),
        upper=np.exp(measured + 2 * NOISE),
        group=group,
        domain=domain,
        table=np.zeros_like(domain),
        measured_at_s=np.full(len(measured), np.nan),
        campaign=np.zeros_like(domain),
        aligned=np.zeros(len(measured), dtype=bool),
        observed=np.zeros(len(measured), dtype=bool),
        workloads=names,
        families=("",) * count,
        domains=tuple(Domain(device_type=name, mode=SharingMode.TIMESLICE, metric=METRIC) for name in DEVICE_TYPES),
        campaigns=("",),
        unordered_pairs=tuple((names[k // count], names[k % count]) for k in places.tolist()),
        job_columns=encoder.job_names,
        pair_columns=encoder.pair_names,
        fingerprint=encoder.fingerprint,
    )
    return dataset, true_log


def _profile(workload: str, device_type: str, facts: Floats) -> JobProfile:
    """Return a profile whose step time, memory and utilisation show the six facts."""
    shares = (1.0 / (1.0 + np.exp(-facts[:4]))).tolist()
    return JobProfile(
        workload=workload,
        device_type=device_type,
        step_time_s=0.1 * math.exp(float(facts[4])),
        memory_peak_bytes=2.0**31 * math.exp(0.5 * float(facts[5])),
        **dict(zip(FACTS, shares, strict=True)),
    )


def main(rows: int, names: list[str], seed: int) -> None:
    """Print a line for each model."""
    dataset, true_log = generated(rows, seed)
    rng = np.random.default_rng([seed, 1])
    hidden = (rng.random(len(dataset.unordered_pairs)) < HIDDEN_SHARE)[dataset.group]
    tested, truth = dataset.take(hidden), speed(true_log[hidden])
    noise = np.abs(speed(tested.log_slowdown) - truth).mean()
    print(f"{len(dataset)} rows of {len(dataset.workloads)} workloads, {int(hidden.sum())} hidden, noise {noise:.4f}")
    with threadpool_limits(1):
        for name in names:
            start_s = time.process_time()
            fitted = MODELS[name].fit(dataset.take(~hidden), seed)
            fit_s = time.process_time() - start_s
            error = np.abs(speed(fitted.predict(tested.rows)) - truth).mean()
            memory_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # kilobytes on Linux
            print(f"{name:9} error {error:.4f}, fit {fit_s:.0f} CPU s, {memory_gb:.1f} GB", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2].split(",") if len(sys.argv) > 2 else ["additive", "gp", "ensemble"], 0)
