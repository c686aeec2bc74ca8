"""A dict with a savepoint: what was learned but could not be stored is undone.

Law: after `set_savepoint`, any changes and `restore_savepoint`, the dict equals what it was. Its values are never
changed in place.
"""

from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RevertibleDict(dict[K, V]):
    """A dict whose changes through `[]=` and `remove` since a savepoint can be undone. No value may be None."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[K, V | None] | None = None

    def __setitem__(self, key: K, value: V) -> None:
        self._remember(key)
        super().__setitem__(key, value)

    def remove(self, key: K) -> V | None:
        """Remove the key and return its value; None when it is not there."""
        self._remember(key)
        return super().pop(key, None)

    def load(self, items: Iterable[tuple[K, V]]) -> None:
        """Set many items at once, before there is any savepoint."""
        assert self._before is None
        self.update(items)

    def set_savepoint(self) -> None:
        """Let `restore_savepoint` return to the present items, until the next savepoint."""
        self._before = {}

    def restore_savepoint(self) -> None:
        """Undo everything since the savepoint, and forget it."""
        before, self._before = self._before or {}, None
        for key, value in before.items():
            if value is None:
                super().pop(key, None)
            else:
                super().__setitem__(key, value)

    def _remember(self, key: K) -> None:
        if self._before is not None and key not in self._before:
            self._before[key] = self.get(key)
