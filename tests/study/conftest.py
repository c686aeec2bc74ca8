"""The tables of the training tests: studies are asked about their workloads."""

from tests.training.conftest import shipped, small, small_folder

__all__ = ["shipped", "small", "small_folder"]
