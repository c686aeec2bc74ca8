"""Placements of jobs in groups of any size: set partitioning by column generation, level by level, with bounds."""
