"""The solvers of one decision: which jobs start where, at the least cost of the objective."""
