"""Pack a memory block with zlib, then wait for the next one as from a slow disk."""

import random
import time
import zlib

block = random.Random(0).randbytes(200_000) + bytes(400_000)
step = 0
while True:
    zlib.compress(block, 6)
    time.sleep(0.012)
    step += 1
    print(f"step {step}", flush=True)
