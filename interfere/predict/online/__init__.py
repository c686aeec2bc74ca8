"""Parts of the online correction: prior and posterior of residuals, solo rates, drift tests, unprofiled jobs, state."""
