"""Profiles jobs that never run: one step is traced under fake tensors and timed by the roofline of a device."""

from interfere.profiling.static.traceable import Factory, Traceable, inference, training

__all__ = ["Factory", "Traceable", "inference", "training"]
