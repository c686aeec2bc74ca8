"""Profiles of jobs that never ran: traced under fake tensors, timed by the roofline of a device."""

from interfere.profiling.static.traceable import Factory, Traceable, inference, training

__all__ = ["Factory", "Traceable", "inference", "training"]
