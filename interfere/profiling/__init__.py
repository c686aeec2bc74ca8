"""Measures jobs alone and in pairs, and records facts about them; no features are derived here."""

from interfere.profiling.workloads.workload import Pause, Step, Workload

__all__ = ["Pause", "Step", "Workload"]
