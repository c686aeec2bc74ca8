"""A scheduler for studies: of the jobs that fit, the one that asks for the fewest devices starts first, alone."""

from interfere.sim.schedulers.orders import Order
from interfere.sim.schedulers.queue import Backfill, QueueScheduler


class FewestDevices(Order):
    """An order of the queue."""

    def keys(self, states, cluster):
        """Return what the queue is sorted by, the smallest first."""
        return [float(state.job.gpus) for state in states]


def smallest_first(settings):
    """Return a new scheduler; `settings` say what is predicted and what a study asks of all schedulers."""
    return QueueScheduler(order=FewestDevices(), backfill=Backfill.FIRST_FIT, whole_nodes=settings.whole_nodes)
