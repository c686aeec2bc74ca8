"""Measures jobs alone and together, and records facts: no derived features here."""

from interfere.profiling.workloads.workload import Pause, Step, Workload

__all__ = ["Pause", "Step", "Workload"]
