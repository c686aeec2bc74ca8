"""Whether a published model may be served: its golden requests."""
