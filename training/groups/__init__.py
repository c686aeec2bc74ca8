"""Fits and evaluates how pair slowdowns compose into the slowdowns of groups, on measured groups."""
