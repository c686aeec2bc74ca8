"""Re-pairing of running jobs, slice by slice."""
