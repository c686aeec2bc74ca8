"""The parts of the online correction: its prior, the effects it learns, solo rates, drift."""
