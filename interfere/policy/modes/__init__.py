"""Which sharing mode a device should have for a set of jobs."""
