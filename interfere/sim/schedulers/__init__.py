"""The schedulers that a replay compares, and the registry of their names."""
