"""What pods measured: who ran on which GPU beside whom and when, steps from sidecars, outcomes, and the journal."""
