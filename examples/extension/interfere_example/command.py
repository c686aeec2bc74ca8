"""Print the worst pair of a table: a command of one's own."""

from interfere import load_table


def worst(table: str) -> None:
    """Print the pair of a table whose victim is slowed most."""
    pair = max(load_table(table).ok_pairs, key=lambda each: each.slowdown)
    print(f"{pair.victim} beside {pair.neighbour}: {pair.slowdown:.2f} ×")
