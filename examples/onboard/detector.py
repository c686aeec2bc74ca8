"""Run a small PyTorch convolution on images that come every 8 milliseconds."""

import time

import torch

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, stride=2), torch.nn.ReLU()
)
image = torch.randn(1, 3, 64, 64)
step = 0
with torch.inference_mode():
    while True:
        model(image).mean().item()
        time.sleep(0.008)
        step += 1
        print(f"step {step}", flush=True)
