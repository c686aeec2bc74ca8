"""Compress blocks of text with LZMA, without a pause."""

import lzma
import random

words = [f"{random.Random(k).getrandbits(40):x}" for k in range(2_000)]
text = " ".join(random.Random(0).choices(words, k=20_000)).encode()
step = 0
while True:
    lzma.compress(text[:60_000], preset=1)
    step += 1
    print(f"step {step}", flush=True)
