"""Solves which jobs start on which devices at the least cost, by column generation with proven lower bounds."""
