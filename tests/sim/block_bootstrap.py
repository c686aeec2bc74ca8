"""A rival: block bootstrap, percentiles of means over days that are drawn in blocks of about a week."""

import math

import numpy as np
from scipy.special import ndtri, stdtrit

from interfere.sim.uncertainty import CONFIDENCE, DaySums

DRAWS = 1000


def bootstrap_ends(sums: DaySums, seed: int) -> tuple[float, float]:
    """Both ends for Σ numerator / Σ denominator - 1: circular blocks of 2 · d^(1/3) days (Politis and Romano 1992),
    widened by √(b / (b - 1)) · t / z for b blocks."""
    days = len(sums.numerator)
    length = 2 * max(1, round(days ** (1 / 3)))
    blocks, quantile = -(-days // length), (1 + CONFIDENCE) / 2
    starts = np.random.default_rng(seed).integers(0, days, (DRAWS, blocks))
    chosen = ((starts[:, :, None] + np.arange(length)) % days).reshape(DRAWS, -1)[:, :days]
    ratios = sums.numerator[chosen].sum(axis=1) / sums.denominator[chosen].sum(axis=1)
    centre = float(sums.numerator.sum() / sums.denominator.sum())
    widening = math.sqrt(blocks / (blocks - 1)) * float(stdtrit(blocks - 1, quantile) / ndtri(quantile))
    low, high = centre + widening * (np.quantile(ratios, [1 - quantile, quantile]) - centre) - 1
    return float(low), float(high)
