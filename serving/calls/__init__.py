"""How calls are admitted, run, interrupted, counted and answered: everything of gRPC that knows no policy."""
