"""Gap filling executed: a job of low priority runs its operators while a job of high priority has none ready.

In a training script::

    import interfere.sharing

    with interfere.sharing.join(priority="low") as session:
        for batch in session.steps(loader):
            ...

Processes of one user that join the same device take turns on it, those of high priority first.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interfere.sharing.live import Session


def join(*, priority: str | int, device: str = "device-0") -> "Session":
    """Return a session in which the PyTorch operators of this thread take turns on a device with other processes.

    `priority` is `high`, `low`, or a number from 0 to 9; `device` is any name on which the processes agree. Raises
    InvalidInputError for another priority, and UnfitError where the device cannot be joined.
    """
    from interfere.sharing.live import Session

    return Session(priority, device)


__all__ = ["join"]
