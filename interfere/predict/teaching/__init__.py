"""Which measurements would teach most about pairs that are not known yet."""
