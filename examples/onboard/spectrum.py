"""Transform long signals with NumPy as they arrive, every 10 milliseconds."""

import time

import numpy as np

signal = np.random.default_rng(0).normal(size=1 << 17)
step = 0
while True:
    np.abs(np.fft.rfft(signal)).argmax()
    time.sleep(0.010)
    step += 1
    print(f"step {step}", flush=True)
