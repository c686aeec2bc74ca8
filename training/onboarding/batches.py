"""The pairs that an onboarding has chosen so far, on disk: run again, it measures these first and chooses no others.

Law: a batch is written before its first pair is measured, so a run that was killed goes on with the same pairs.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from interfere.errors import TableError
from interfere.file_writing import write_atomically

FILE = "onboarding.json"
Pair = tuple[str, str]


@dataclass(slots=True)
class Batches:
    """Batches of chosen pairs, and the seconds that measuring has taken, over all runs."""

    path: Path
    batches: list[tuple[Pair, ...]] = field(default_factory=list)
    spent_s: float = 0.0

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """All chosen pairs."""
        return tuple(pair for batch in self.batches for pair in batch)

    def add(self, batch: tuple[Pair, ...]) -> None:
        """Choose a batch."""
        self.batches.append(batch)
        self.save()

    def save(self) -> None:
        """Write the file, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"batches": self.batches, "spent_s": round(self.spent_s, 3)}, indent=2) + "\n"
        write_atomically(self.path, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))


def read_batches(table: Path) -> Batches:
    """The batches of a table's folder; none where nothing was chosen yet. Raises TableError for a damaged file."""
    path = table / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        batches = [tuple((str(a), str(b)) for a, b in batch) for batch in content["batches"]]
        return Batches(path=path, batches=batches, spent_s=float(content["spent_s"]))
    except FileNotFoundError:
        return Batches(path=path)
    except (ValueError, KeyError, TypeError) as error:
        raise TableError(
            f"{FILE} is not a file that onboarding wrote",
            value=f"{path}: {error}",
            remedy="delete it: pairs are then chosen anew, and those measured already count",
        ) from None
