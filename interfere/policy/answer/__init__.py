"""The answer: actions with reasons, merged sub-plans, rankings of devices, and alternatives to a decision."""
