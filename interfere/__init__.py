"""interfere: what happens when GPU jobs share a device, and what a scheduler should do about it."""

__version__ = "0.1.0"
