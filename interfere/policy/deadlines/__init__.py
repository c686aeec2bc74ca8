"""Deadlines: which are infeasible, which are accepted and guaranteed, and how jobs are laid out to meet them."""
