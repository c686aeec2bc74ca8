"""A dict that can take back what was set since a mark: what is learned before it is stored must be unlearnable.

Law: after `mark`, any changes and `take_back`, the dict equals what it was. Its values are never changed in place.
"""

from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class UndoDict(dict[K, V]):
    """Changes through `[]=` and `pop` can be taken back."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[K, V | None] | None = None

    def __setitem__(self, key: K, value: V) -> None:
        self._remember(key)
        super().__setitem__(key, value)

    def take(self, key: K) -> V | None:
        """Remove and return; None when it is not there."""
        self._remember(key)
        return super().pop(key, None)

    def load(self, items: Iterable[tuple[K, V]]) -> None:
        """Many at once, into a dict that nothing is taken back in."""
        assert self._before is None
        self.update(items)

    def mark(self) -> None:
        """What is here now can be had back, until the next mark."""
        self._before = {}

    def take_back(self) -> None:
        """Undo everything since the mark."""
        before, self._before = self._before or {}, None
        for key, value in before.items():
            if value is None:
                super().pop(key, None)
            else:
                super().__setitem__(key, value)

    def _remember(self, key: K) -> None:
        if self._before is not None and key not in self._before:
            self._before[key] = self.get(key)
