"""Train a small PyTorch network, without a pause."""

import torch

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.Adam(model.parameters())
inputs, labels = torch.randn(128, 256), torch.randint(0, 10, (128,))
step = 0
while True:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    step += 1
    if step % 5 == 0:
        print(f"step {step}", flush=True)
