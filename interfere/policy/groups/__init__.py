"""Decisions about devices that more than two jobs, or only one, may share: groups up to the seats of each device."""
