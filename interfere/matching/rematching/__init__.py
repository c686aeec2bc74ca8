"""Jobs that run and jobs that wait as one assignment: who runs, beside whom and on whose device, moves paid for."""
