"""An independent exhaustive oracle for decisions: random clusters, scalar costs, and every placement of each."""
