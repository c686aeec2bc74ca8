"""Learning from observations: the log, its fold into the online model, and what readers see of it."""
