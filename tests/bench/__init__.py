"""Measurements that are recorded, never asserted on time."""
