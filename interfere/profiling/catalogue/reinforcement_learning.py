"""Reinforcement learning models: the part of A3C and PPO that a GPU runs, without their simulators.

A3C (Mnih et al. 2016) follows dgriff777's port, which Gavel runs; PPO (Schulman et al. 2017) has Stable-Baselines3's
defaults, which Lucid keeps.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from interfere.profiling.static import Traceable, training

ROLLOUT, WORKERS, ACTIONS, FRAME = 20, 4, 6, 80  # A3C on Pong: steps, workers (Gavel's command), actions, pixels a side
OBSERVED, LANDER_ACTIONS = 8, 4  # LunarLander: numbers observed, discrete actions
COLLECTED, EPOCHS = 2048, 10  # PPO: steps before an update, passes over them (Stable-Baselines3's n_steps, n_epochs)


class ActorCritic(nn.Module):
    """The network of A3C: four convolutions with pooling, an LSTM cell, and two heads."""

    def __init__(self) -> None:
        super().__init__()
        shapes = ((1, 32, 5, 2), (32, 32, 5, 1), (32, 64, 4, 1), (64, 64, 3, 1))  # in, out, kernel, padding
        layers = ((nn.Conv2d(i, o, k, 1, pad), nn.MaxPool2d(2), nn.ReLU()) for i, o, k, pad in shapes)
        self.encode = nn.Sequential(*(part for layer in layers for part in layer), nn.Flatten())
        self.memory = nn.LSTMCell(64 * 4 * 4, 512)
        self.act, self.value = nn.Linear(512, ACTIONS), nn.Linear(512, 1)


def a3c() -> Traceable:
    """Return a rollout and an update of every A3C worker, which together are a reported step."""
    model = ActorCritic()
    frames, returns = torch.randn(ROLLOUT, 1, 1, FRAME, FRAME), torch.randn(ROLLOUT, 1, 1)
    optimizer = torch.optim.Adam(model.parameters(), amsgrad=True)

    def loss() -> Tensor:
        state = (torch.zeros(1, 512), torch.zeros(1, 512))
        total = torch.zeros(())
        for frame, target in zip(frames, returns, strict=True):
            state = model.memory(model.encode(frame), state)
            advantage = target - model.value(state[0])
            log_probability = functional.log_softmax(model.act(state[0]), -1)[:, :1]
            total = total + advantage.square().mean() - (log_probability * advantage.detach()).mean()
        return total

    return training(model, loss, optimizer, repeats=WORKERS)


def ppo(batch: int, amp: bool = False) -> Traceable:
    """Return a PPO update on a batch, with the batch's share of the collection of actions.

    A reported step collects 2,048 actions and passes over them ten times.
    """
    actor, critic = (
        nn.Sequential(nn.Linear(OBSERVED, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out))
        for out in (LANDER_ACTIONS, 1)
    )
    model = nn.ModuleList([actor, critic])
    observations, observation = torch.randn(batch, OBSERVED), torch.randn(1, OBSERVED)
    actions = torch.randint(LANDER_ACTIONS, (batch, 1))
    old_log_probability, advantage, returns = torch.randn(batch, 1), torch.randn(batch, 1), torch.randn(batch, 1)

    def loss() -> Tensor:
        with torch.no_grad():
            for _ in range(round(batch / EPOCHS)):
                actor(observation).softmax(-1).multinomial(1)
                critic(observation)
        log_probabilities = actor(observations).log_softmax(-1)
        ratio = (log_probabilities.gather(1, actions) - old_log_probability).exp()
        policy_loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        loss = policy_loss + 0.5 * functional.mse_loss(critic(observations), returns)
        return loss + 0.0 * (log_probabilities * log_probabilities.exp()).mean()  # the entropy, with weight 0

    repeats = EPOCHS * COLLECTED // batch
    return training(model, loss, torch.optim.Adam(model.parameters()), amp=amp, clip_norm=0.5, repeats=repeats)
