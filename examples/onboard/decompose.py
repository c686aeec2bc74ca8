"""Decompose a matrix with NumPy, without a pause."""

import numpy as np

matrix = np.random.default_rng(0).normal(size=(120, 120))
step = 0
while True:
    np.linalg.svd(matrix)
    step += 1
    print(f"step {step}", flush=True)
