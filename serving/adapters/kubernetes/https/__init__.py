"""What the controller answers over HTTP: the mutating webhook, the scheduler extender, marks of sidecars, metrics."""
