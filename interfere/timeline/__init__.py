"""Kernel timelines: what happens inside a device when two of them meet, under each way of sharing it."""
