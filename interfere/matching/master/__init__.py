"""Placements of jobs on several device classes: a master problem solved by column generation, level by level."""
