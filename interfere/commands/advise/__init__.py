"""Advice on the sharing mode of a device."""
