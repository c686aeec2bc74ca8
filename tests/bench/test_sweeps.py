"""Sweeps over six Philly-derived traces: loads and queues, and what predictions are worth."""

import pytest

from interfere.study.engine import Runner
from tests.bench.belief_sweep import belief_inputs, belief_tasks, print_beliefs
from tests.bench.history import record
from tests.bench.load_sweep import QUEUES, print_changes, replayed, sweep_inputs, sweep_tasks

pytestmark = pytest.mark.bench


@pytest.mark.timeout(1800)
def test_loads_and_queues() -> None:
    """Sharing pays at a load of .95 under every queue; matching newcomers never brings 2 % over greedy."""
    figures = print_changes(replayed(sweep_inputs(), sweep_tasks(), Runner(report=print)))
    record("replay-loads", figures)
    for queue in (queue.label for queue in QUEUES):
        assert figures[f"{queue}-greedy against {queue} at 0.95"] < 0
        assert abs(figures[f"{queue}-matching against {queue}-greedy at 0.95"]) < 0.02


@pytest.mark.timeout(1800)
def test_beliefs() -> None:
    """Measured pairs are worth more than none."""
    inputs = belief_inputs()
    figures = print_beliefs(inputs, replayed(inputs, belief_tasks(inputs), Runner(report=print)))
    record("replay-beliefs", figures)
    for queue in ("sjf-easy", "tiresias-first-fit"):
        assert figures[f"{queue} measured cap inf"] < figures[f"{queue} mean of all pairs cap inf"]
