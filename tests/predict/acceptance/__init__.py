"""Whether a model may be served."""
