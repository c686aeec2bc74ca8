"""The answer: actions with reasons, merged plans, rankings of devices, and alternatives to a decision."""
