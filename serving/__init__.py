"""The policy server: a core that knows no gRPC, thin methods over it, and the composition that runs both."""
