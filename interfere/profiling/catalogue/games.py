"""Reinforcement learning: the part of A3C and PPO that a GPU runs; their simulators are not seen.

Mnih et al. 2016, as dgriff777's port that Gavel runs; Schulman et al. 2017, with Stable-Baselines3's defaults, which
Lucid keeps.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from interfere.profiling.static.traceable import Traceable, training

ROLLOUT, WORKERS, ACTIONS, FRAME = 20, 4, 6, 80  # A3C on Pong: steps, workers (Gavel's command), actions, pixels a side
SEEN, MOVES = 8, 4  # LunarLander: numbers observed, discrete actions
COLLECTED, EPOCHS = 2048, 10  # PPO: steps before an update, passes over them (Stable-Baselines3's n_steps, n_epochs)


class ActorCritic(nn.Module):
    """Four convolutions with pooling, an LSTM cell, two heads."""

    def __init__(self) -> None:
        super().__init__()
        shapes = ((1, 32, 5, 2), (32, 32, 5, 1), (32, 64, 4, 1), (64, 64, 3, 1))  # in, out, kernel, padding
        layers = ((nn.Conv2d(i, o, k, 1, pad), nn.MaxPool2d(2), nn.ReLU()) for i, o, k, pad in shapes)
        self.see = nn.Sequential(*(part for layer in layers for part in layer), nn.Flatten())
        self.remember = nn.LSTMCell(64 * 4 * 4, 512)
        self.act, self.value = nn.Linear(512, ACTIONS), nn.Linear(512, 1)


def a3c() -> Traceable:
    """A rollout and an update of one worker, once for each worker: a step is counted while all of them take one."""
    model = ActorCritic()
    frames, returns = torch.randn(ROLLOUT, 1, 1, FRAME, FRAME), torch.randn(ROLLOUT, 1, 1)
    optimizer = torch.optim.Adam(model.parameters(), amsgrad=True)

    def loss() -> Tensor:
        state = (torch.zeros(1, 512), torch.zeros(1, 512))
        total = torch.zeros(())
        for frame, gain in zip(frames, returns, strict=True):
            state = model.remember(model.see(frame), state)
            advantage = gain - model.value(state[0])
            chosen = functional.log_softmax(model.act(state[0]), -1)[:, :1]
            total = total + advantage.square().mean() - (chosen * advantage.detach()).mean()
        return total

    return training(model, loss, optimizer, repeats=WORKERS)


def ppo(batch: int, amp: bool = False) -> Traceable:
    """One update of a batch with the actions that pay for it; a step collects 2,048 and passes over them ten times."""
    actor, critic = (
        nn.Sequential(nn.Linear(SEEN, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out))
        for out in (MOVES, 1)
    )
    model = nn.ModuleList([actor, critic])
    seen, now = torch.randn(batch, SEEN), torch.randn(1, SEEN)
    moves = torch.randint(MOVES, (batch, 1))
    before, gain, returns = torch.randn(batch, 1), torch.randn(batch, 1), torch.randn(batch, 1)

    def loss() -> Tensor:
        with torch.no_grad():
            for _ in range(round(batch / EPOCHS)):
                actor(now).softmax(-1).multinomial(1)
                critic(now)
        chances = actor(seen).log_softmax(-1)
        ratio = (chances.gather(1, moves) - before).exp()
        policy = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        return policy + 0.5 * functional.mse_loss(critic(seen), returns) + 0.0 * (chances * chances.exp()).mean()

    repeats = EPOCHS * COLLECTED // batch
    return training(model, loss, torch.optim.Adam(model.parameters()), amp=amp, clip_norm=0.5, repeats=repeats)
