"""Decisions about devices of other than two seats."""
